/* SPDX-License-Identifier: Apache-2.0
 * The forward and the backward pass. Read them side by side: the second undoes the first, line by line. */
#include "network.h"

static bool forward_block(Network* net, Block* b) {
    const int64_t rows = net->batch * net->context, dim = net->dim;
    const AttentionShape* s = &net->attention.shape;
    TRY(mp_linear_forward(b->qkv, NULL, b->h1.tensor, net->qkv.tensor));
    split_heads(floats(&b->q.whole), floats(&b->k.whole), floats(&b->v.whole), floats(&net->qkv),
                s);
    TRY_OWN(attention_forward(&net->attention, &net->heads, &b->prob, &b->q, &b->k, &b->v));
    merge_heads(floats(&b->attended), floats(&net->heads.whole), s);
    TRY(mp_linear_forward(b->proj, NULL, b->attended.tensor, net->delta.tensor));
    add_layernorm(floats(&b->h2), floats(&b->x2), floats(&b->x1), floats(&net->delta), &b->ln2,
                  rows, dim);
    TRY(mp_linear_forward(b->fc, NULL, b->h2.tensor, b->derivative.tensor));
    gelu(floats(&b->activated), floats(&b->derivative), rows * 4 * dim);
    TRY(mp_linear_forward(b->fc2, NULL, b->activated.tensor, net->delta.tensor));
    return true;
}

static void bind(LayerNorm* ln, const Param* gain) {
    ln->gain = param_value(gain);
    ln->bias = param_value(gain + 1);
}

/* Waits until a group of parameters is there, and finds where. */
static bool use(Network* net, int64_t group) {
    TRY_OWN(params_gather_wait(net->params, group));
    if (group == net->layers) {
        bind(&net->lnf, last_param(net->params, LNF_GAIN));
    } else {
        bind(&net->blocks[group].ln1, block_param(net->params, group, LN1_GAIN));
        bind(&net->blocks[group].ln2, block_param(net->params, group, LN2_GAIN));
    }
    return true;
}

static bool forward_embeddings(Network* net, const uint8_t* tokens) {
    Params* params = net->params;
    TRY_OWN(params_gather_begin(params, PARAMS_EMBEDDINGS));
    TRY_OWN(params_gather_begin(params, 0));
    TRY_OWN(params_gather_wait(params, PARAMS_EMBEDDINGS));
    embed(floats(&net->blocks[0].x1), param_value(&params->list[PARAM_WTE]),
          param_value(&params->list[PARAM_WPE]), tokens, net->batch, net->context, net->dim);
    return params_release(params, PARAMS_EMBEDDINGS);
}

bool network_forward(Network* net, const uint8_t* tokens, const uint8_t* targets, float scale,
                     double* loss) {
    const int64_t rows = net->batch * net->context, dim = net->dim;
    Params* params = net->params;
    Block* b = &net->blocks[0];
    TRY_OWN(forward_embeddings(net, tokens));
    TRY_OWN(use(net, 0));
    add_layernorm(floats(&b->h1), NULL, floats(&b->x1), NULL, &b->ln1, rows, dim);
    for (int64_t i = 0; i < net->layers; i++, b++) {
        TRY_OWN(params_gather_begin(params, i + 1));
        TRY_OWN(forward_block(net, b));
        TRY_OWN(use(net, i + 1));
        /* The second addition of a block is done together with the next normalization. */
        const bool last = i + 1 == net->layers;
        add_layernorm(floats(last ? &net->hf : &b[1].h1), floats(last ? &net->xf : &b[1].x1),
                      floats(&b->x2), floats(&net->delta), last ? &net->lnf : &b[1].ln1, rows, dim);
        TRY_OWN(params_release(params, i));
    }
    TRY(mp_linear_forward(net->head, NULL, net->hf.tensor, net->logits.tensor));
    if (targets != NULL) {
        *loss = cross_entropy(floats(&net->logits), targets, rows, 256, scale);
    }
    const bool backward_follows = targets != NULL && scale != 0.0f;
    return backward_follows || params_release(params, net->layers);
}

static bool linear_backward(mp_linear* linear, const Array* dy, Array* dx, const Param* weight,
                            const Param* bias, bool first) {
    TRY(mp_linear_backward(linear, NULL, dy->tensor, dx->tensor, weight->grad.tensor,
                           bias != NULL ? bias->grad.tensor : NULL,
                           first ? 0 : MP_LINEAR_ACCUMULATE));
    return true;
}

/* net->dx holds the gradient of the block's output and becomes that of its input. */
static bool backward_block(Network* net, int64_t index, bool first) {
    const int64_t rows = net->batch * net->context, dim = net->dim;
    const AttentionShape* s = &net->attention.shape;
    const Params* params = net->params;
    Param* p = block_param(params, index, 0);
    Block* b = &net->blocks[index];
    TRY_OWN(linear_backward(b->fc2, &net->dx, &net->dwide, &p[FC2_WEIGHT], &p[FC2_BIAS], first));
    gelu_backward(floats(&net->dwide), floats(&b->derivative), rows * 4 * dim);
    TRY_OWN(linear_backward(b->fc, &net->dwide, &net->dh, &p[FC_WEIGHT], &p[FC_BIAS], first));
    layernorm_backward(floats(&net->dx), param_gradient(&p[LN2_GAIN]), param_gradient(&p[LN2_BIAS]),
                       floats(&net->ln_scratch), floats(&net->dh), floats(&b->x2), &b->ln2, rows,
                       dim, true);
    TRY_OWN(linear_backward(b->proj, &net->dx, &net->dh, &p[PROJ_WEIGHT], &p[PROJ_BIAS], first));
    merge_heads_backward(floats(&net->heads.whole), floats(&net->dh), s);
    TRY_OWN(attention_backward(&net->attention, &net->dq, &net->dk, &net->dv, &net->dscores,
                               &net->heads, &b->prob, &b->q, &b->k, &b->v));
    split_heads_backward(floats(&net->qkv), floats(&net->dq.whole), floats(&net->dk.whole),
                         floats(&net->dv.whole), s);
    TRY_OWN(linear_backward(b->qkv, &net->qkv, &net->dh, &p[QKV_WEIGHT], &p[QKV_BIAS], first));
    layernorm_backward(floats(&net->dx), param_gradient(&p[LN1_GAIN]), param_gradient(&p[LN1_BIAS]),
                       floats(&net->ln_scratch), floats(&net->dh), floats(&b->x1), &b->ln1, rows,
                       dim, true);
    return true;
}

static bool backward_head(Network* net, bool first, bool last) {
    Params* params = net->params;
    TRY_OWN(params_begin_gradients(params, net->layers, first));
    TRY_OWN(linear_backward(net->head, &net->logits, &net->dh, last_param(params, HEAD_WEIGHT),
                            NULL, first));
    layernorm_backward(floats(&net->dx), param_gradient(last_param(params, LNF_GAIN)),
                       param_gradient(last_param(params, LNF_BIAS)), floats(&net->ln_scratch),
                       floats(&net->dh), floats(&net->xf), &net->lnf, net->batch * net->context,
                       net->dim, false);
    TRY_OWN(params_release(params, net->layers));
    return params_end_gradients(params, net->layers, first, last);
}

bool network_backward(Network* net, const uint8_t* tokens, bool first, bool last) {
    Params* params = net->params;
    TRY_OWN(params_gather_begin(params, net->layers - 1));
    TRY_OWN(backward_head(net, first, last));
    for (int64_t i = net->layers - 1; i >= 0; i--) {
        TRY_OWN(use(net, i));
        if (i > 0) {
            TRY_OWN(params_gather_begin(params, i - 1));
        }
        TRY_OWN(params_begin_gradients(params, i, first));
        TRY_OWN(backward_block(net, i, first));
        TRY_OWN(params_release(params, i));
        TRY_OWN(params_end_gradients(params, i, first, last));
    }
    TRY_OWN(params_begin_gradients(params, PARAMS_EMBEDDINGS, first));
    embed_backward(param_gradient(&params->list[PARAM_WTE]),
                   param_gradient(&params->list[PARAM_WPE]), floats(&net->dx), tokens, net->batch,
                   net->context, net->dim);
    TRY_OWN(params_end_gradients(params, PARAMS_EMBEDDINGS, first, last));
    return params_end_pass(params);
}
