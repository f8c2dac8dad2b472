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

bool network_forward(Network* net, const uint8_t* tokens, const uint8_t* targets, float scale,
                     double* loss) {
    const int64_t rows = net->batch * net->context, dim = net->dim;
    const Param *wte = &net->params->list[PARAM_WTE], *wpe = &net->params->list[PARAM_WPE];
    Block* b = &net->blocks[0];
    embed(floats(&b->x1), param_value(wte), param_value(wpe), tokens, net->batch, net->context,
          dim);
    add_layernorm(floats(&b->h1), NULL, floats(&b->x1), NULL, &b->ln1, rows, dim);
    for (int64_t i = 0; i < net->layers; i++, b++) {
        TRY_OWN(forward_block(net, b));
        /* The second addition of a block is done together with the next normalization. */
        const bool last = i + 1 == net->layers;
        add_layernorm(floats(last ? &net->hf : &b[1].h1), floats(last ? &net->xf : &b[1].x1),
                      floats(&b->x2), floats(&net->delta), last ? &net->lnf : &b[1].ln1, rows, dim);
    }
    TRY(mp_linear_forward(net->head, NULL, net->hf.tensor, net->logits.tensor));
    if (targets != NULL) {
        *loss = cross_entropy(floats(&net->logits), targets, rows, 256, scale);
    }
    return true;
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

bool network_backward(Network* net, const uint8_t* tokens, bool first) {
    const int64_t rows = net->batch * net->context, dim = net->dim;
    Params* params = net->params;
    TRY_OWN(params_begin_pass(params, first));
    TRY_OWN(linear_backward(net->head, &net->logits, &net->dh, last_param(params, HEAD_WEIGHT),
                            NULL, first));
    layernorm_backward(floats(&net->dx), param_gradient(last_param(params, LNF_GAIN)),
                       param_gradient(last_param(params, LNF_BIAS)), floats(&net->ln_scratch),
                       floats(&net->dh), floats(&net->xf), &net->lnf, rows, dim, false);
    for (int64_t i = net->layers - 1; i >= 0; i--) {
        TRY_OWN(backward_block(net, i, first));
    }
    embed_backward(param_gradient(&params->list[PARAM_WTE]),
                   param_gradient(&params->list[PARAM_WPE]), floats(&net->dx), tokens, net->batch,
                   net->context, dim);
    return params_end_pass(params, first);
}
