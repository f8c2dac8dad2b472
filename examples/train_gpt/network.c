/* SPDX-License-Identifier: Apache-2.0
 * Memory and layers of the network. The passes are in passes.c. */
#include "network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool make_linear(mp_linear** out, Network* net, const Param* weight, const Param* bias,
                        uint32_t flags) {
    mp_linear_desc desc = MP_LINEAR_DESC_INIT;
    desc.flags = flags | (net->inference ? MP_LINEAR_INFERENCE : 0) |
                 (net->cached_weights ? MP_LINEAR_CACHE_WEIGHT : 0);
    desc.in_features = weight->cols;
    desc.out_features = weight->rows;
    TRY(mp_linear_create(net->params->context, net->params->recipe, &desc, weight->weight.tensor,
                         bias != NULL ? bias->weight.tensor : NULL, out));
    net->linears[net->linear_count++] = *out;
    return true;
}

/* Gain and bias: network_use. */
static LayerNorm make_layernorm(float* statistics, int64_t rows) {
    const LayerNorm ln = {NULL, NULL, statistics, statistics + rows};
    return ln;
}

/* A second reference to the first block's array instead of memory of its own, where blocks can share. */
static bool make_input(Array* array, const Network* net, const Array* first, int64_t cols) {
    if (first != array && (net->shared_inputs || net->inference)) {
        return array_wrap(array, net->params->context, floats(first), net->batch * net->context,
                          cols);
    }
    return array_create(array, net->params->context, MP_DTYPE_FP32, net->batch * net->context,
                        cols);
}

/* Layers look at their weights when they are made. */
static bool gather(Network* net, int64_t group) {
    return params_gather_begin(net->params, group) && params_gather_wait(net->params, group);
}

static bool make_linears(Network* net, int64_t index) {
    Block* b = &net->blocks[index];
    const Params* params = net->params;
    TRY_OWN(gather(net, index));
    TRY_OWN(make_linear(&b->qkv, net, block_param(params, index, QKV_WEIGHT),
                        block_param(params, index, QKV_BIAS), 0));
    TRY_OWN(make_linear(&b->proj, net, block_param(params, index, PROJ_WEIGHT),
                        block_param(params, index, PROJ_BIAS), 0));
    TRY_OWN(make_linear(&b->fc, net, block_param(params, index, FC_WEIGHT),
                        block_param(params, index, FC_BIAS), 0));
    TRY_OWN(make_linear(&b->fc2, net, block_param(params, index, FC2_WEIGHT),
                        block_param(params, index, FC2_BIAS), 0));
    return params_release(net->params, index);
}

static bool make_block(Network* net, int64_t index) {
    Block* b = &net->blocks[index];
    Block* first = &net->blocks[0];
    mp_context* context = net->params->context;
    const int64_t rows = net->batch * net->context, dim = net->dim;
    TRY_OWN(make_linears(net, index));
    TRY_OWN(array_create(&b->statistics, context, MP_DTYPE_FP32, 4 * rows, 0));
    b->ln1 = make_layernorm(floats(&b->statistics), rows);
    b->ln2 = make_layernorm(floats(&b->statistics) + 2 * rows, rows);
    TRY_OWN(array_create(&b->x1, context, MP_DTYPE_FP32, rows, dim));
    TRY_OWN(array_create(&b->x2, context, MP_DTYPE_FP32, rows, dim));
    TRY_OWN(make_input(&b->h1, net, &first->h1, dim));
    TRY_OWN(make_input(&b->attended, net, &first->attended, dim));
    TRY_OWN(make_input(&b->h2, net, &first->h2, dim));
    TRY_OWN(make_input(&b->activated, net, &first->activated, 4 * dim));
    TRY_OWN(array_create(&b->derivative, context, MP_DTYPE_FP32, rows, 4 * dim));
    return blocked_heads(&b->q, context, &net->attention) &&
           blocked_heads(&b->k, context, &net->attention) &&
           blocked_heads(&b->v, context, &net->attention) &&
           blocked_matrices(&b->prob, context, &net->attention);
}

static bool make_backward(Network* net) {
    mp_context* context = net->params->context;
    const int64_t rows = net->batch * net->context, dim = net->dim;
    TRY_OWN(array_create(&net->dx, context, MP_DTYPE_FP32, rows, dim));
    TRY_OWN(array_create(&net->dh, context, MP_DTYPE_FP32, rows, dim));
    TRY_OWN(array_create(&net->dwide, context, MP_DTYPE_FP32, rows, 4 * dim));
    TRY_OWN(array_create(&net->ln_scratch, context, MP_DTYPE_FP32, LAYERNORM_PARTS, 2 * dim));
    return blocked_heads(&net->dq, context, &net->attention) &&
           blocked_heads(&net->dk, context, &net->attention) &&
           blocked_heads(&net->dv, context, &net->attention) &&
           blocked_matrices(&net->dscores, context, &net->attention);
}

bool network_create(Network* net, Params* params, const Options* o, int64_t batch, bool inference) {
    memset(net, 0, sizeof *net);
    *net = (Network){.params = params,
                     .batch = batch,
                     .context = o->context,
                     .dim = o->dim,
                     .layers = o->layers,
                     .inference = inference,
                     .cached_weights = !params_come_and_go(params) && (inference || o->accum > 1)};
    const char* wgrad = NULL;
    TRY(mp_recipe_get_string(params->recipe, MP_RECIPE_GEMM_WGRAD_DTYPE, &wgrad));
    /* Then every layer keeps a copy: of this type, or of fp8 codes. */
    net->shared_inputs = strcmp(wgrad, "fp32") != 0;
    net->blocks = calloc((size_t)o->layers, sizeof *net->blocks);
    net->linears = calloc((size_t)o->layers * 4 + 1, sizeof(mp_linear*));
    if (net->blocks == NULL || net->linears == NULL) {
        fputs("train_gpt: out of memory for the list of layers\n", stderr);
        return false;
    }
    mp_context* context = params->context;
    const int64_t rows = batch * o->context;
    const int64_t quarter = (o->context + MAX_BLOCKS - 1) / MAX_BLOCKS;
    const AttentionShape shape = {batch, o->heads, o->context, o->dim / o->heads,
                                  quarter < 64 ? 64 : quarter};
    TRY_OWN(attention_create(&net->attention, context, shape, !inference));
    for (int64_t i = 0; i < o->layers; i++) {
        TRY_OWN(make_block(net, i));
    }
    TRY_OWN(gather(net, net->layers));
    TRY_OWN(make_linear(&net->head, net, last_param(params, HEAD_WEIGHT), NULL,
                        MP_LINEAR_FIRST_OR_LAST));
    TRY_OWN(params_release(params, net->layers));
    TRY_OWN(array_create(&net->statistics, context, MP_DTYPE_FP32, 2 * rows, 0));
    net->lnf = make_layernorm(floats(&net->statistics), rows);
    TRY_OWN(array_create(&net->xf, context, MP_DTYPE_FP32, rows, o->dim));
    TRY_OWN(array_create(&net->hf, context, MP_DTYPE_FP32, rows, o->dim));
    TRY_OWN(array_create(&net->logits, context, MP_DTYPE_FP32, rows, 256));
    TRY_OWN(array_create(&net->qkv, context, MP_DTYPE_FP32, rows, 3 * o->dim));
    TRY_OWN(array_create(&net->delta, context, MP_DTYPE_FP32, rows, o->dim));
    TRY_OWN(blocked_heads(&net->heads, context, &net->attention));
    if (inference) {
        return true;
    }
    /* The optimizer's step ends theirs. On ranks their amaxes then travel in its vote. */
    TRY(mp_optimizer_set_linears(params->optimizer, net->linears, net->linear_count));
    return make_backward(net);
}

static void destroy_block(Block* b) {
    mp_linear* const linears[] = {b->qkv, b->proj, b->fc, b->fc2};
    Array* const arrays[] = {&b->x1, &b->x2,        &b->h1,         &b->attended,
                             &b->h2, &b->activated, &b->derivative, &b->statistics};
    Blocked* const blocked[] = {&b->q, &b->k, &b->v, &b->prob};
    for (size_t i = 0; i < sizeof linears / sizeof linears[0]; i++) {
        mp_linear_destroy(linears[i]);
    }
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        array_destroy(arrays[i]);
    }
    for (size_t i = 0; i < sizeof blocked / sizeof blocked[0]; i++) {
        blocked_destroy(blocked[i]);
    }
}

void network_destroy(Network* net) {
    /* Backwards: the first block owns what the others share. */
    for (int64_t i = net->blocks != NULL ? net->layers - 1 : -1; i >= 0; i--) {
        destroy_block(&net->blocks[i]);
    }
    Array* const arrays[] = {&net->xf,    &net->hf,        &net->statistics, &net->logits,
                             &net->qkv,   &net->delta,     &net->dx,         &net->dh,
                             &net->dwide, &net->ln_scratch};
    Blocked* const blocked[] = {&net->heads, &net->dq, &net->dk, &net->dv, &net->dscores};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        array_destroy(arrays[i]);
    }
    for (size_t i = 0; i < sizeof blocked / sizeof blocked[0]; i++) {
        blocked_destroy(blocked[i]);
    }
    mp_linear_destroy(net->head);
    attention_destroy(&net->attention);
    free(net->linears);
    free(net->blocks);
    memset(net, 0, sizeof *net);
}

void network_linear_name(const Network* net, int32_t index, char* name, size_t size) {
    static const char* const names[] = {"qkv", "proj", "fc", "fc2"};
    if (index + 1 == net->linear_count) {
        snprintf(name, size, "head");
    } else {
        snprintf(name, size, "h%d.%s", (int)(index / 4), names[index % 4]);
    }
}

static bool scaling_bytes(const Network* net, int32_t index, size_t* bytes) {
    TRY(mp_linear_scaling_save(net->linears[index], NULL, 0, bytes));
    return true;
}

bool network_save_scaling(const Network* net, unsigned char** saved) {
    size_t total = 0, bytes = 0;
    for (int32_t i = 0; i < net->linear_count; i++) {
        TRY_OWN(scaling_bytes(net, i, &bytes));
        total += bytes;
    }
    *saved = malloc(total);
    if (*saved == NULL) {
        fputs("train_gpt: out of memory for the scaling state\n", stderr);
        return false;
    }
    size_t offset = 0;
    for (int32_t i = 0; i < net->linear_count; i++) {
        TRY(mp_linear_scaling_save(net->linears[i], *saved + offset, total - offset, &bytes));
        offset += bytes;
    }
    return true;
}

bool network_load_scaling(Network* net, const unsigned char* saved) {
    size_t bytes = 0;
    for (int32_t i = 0; i < net->linear_count; i++, saved += bytes) {
        TRY_OWN(scaling_bytes(net, i, &bytes));
        TRY(mp_linear_scaling_load(net->linears[i], saved, bytes));
    }
    return true;
}
