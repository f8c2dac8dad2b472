/* SPDX-License-Identifier: Apache-2.0
 * Everything the model computes besides matrix products: plain loops over fp32 arrays, one parallel region each.
 * Matrices are row-major. Functions whose names end in _backward add to the gradients they are given unless said. */
#ifndef MIXEDPREC_TRAIN_KERNELS_H
#define MIXEDPREC_TRAIN_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* x[b, t] = wte[tokens[b, t]] + wpe[t], for `batch` rows of `context` tokens. */
void embed(float* x, const float* wte, const float* wpe, const uint8_t* tokens, int64_t batch,
           int64_t context, int64_t dim);
void embed_backward(float* dwte, float* dwpe, const float* dx, const uint8_t* tokens, int64_t batch,
                    int64_t context, int64_t dim);

/* One layer normalization (eps 1e-5), and what its backward pass needs. */
typedef struct {
    const float* gain;
    const float* bias;
    float* mean; /* one for each row */
    float* rstd; /* 1 / sqrt(variance + eps) */
} LayerNorm;

/* sum = x + delta, out = layernorm(sum). With delta NULL, sum is not written and x is normalized itself. */
void add_layernorm(float* out, float* sum, const float* x, const float* delta, const LayerNorm* ln,
                   int64_t rows, int64_t dim);

/* dx (+)= gradient through the normalization of x; overwritten unless accumulate. dgain and dbias are added to.
 * `scratch` holds 2 * dim floats for each of LAYERNORM_PARTS. */
enum { LAYERNORM_PARTS = 32 };
void layernorm_backward(float* dx, float* dgain, float* dbias, float* scratch, const float* dout,
                        const float* x, const LayerNorm* ln, int64_t rows, int64_t dim,
                        bool accumulate);

/* out = gelu(z) in the tanh form; z is replaced by the derivative there, which is all the backward pass needs. */
void gelu(float* out, float* z, int64_t count);
/* dout *= derivative, in place. */
void gelu_backward(float* dout, const float* derivative, int64_t count);

/* One attention layer's sizes. Heads are kept apart as [batch * heads, context, head_dim]. */
typedef struct {
    int64_t batch, heads, context, head_dim;
    int64_t block; /* rows of one causal block: columns behind a row's block are never touched */
} AttentionShape;

/* heads = factor * rows, whose heads lie one behind the other in each row of `stride` floats; and the way back. */
void heads_from_rows(float* heads, const float* rows, int64_t stride, float factor,
                     const AttentionShape* s);
void rows_from_heads(float* rows, const float* heads, int64_t stride, float factor,
                     const AttentionShape* s);

/* Row t of each [context, context] matrix becomes the softmax of its first t + 1 numbers; the rest of the block is 0. */
void causal_softmax(float* scores, const AttentionShape* s);
/* dprob becomes the gradient of the scores. */
void causal_softmax_backward(float* dprob, const float* prob, const AttentionShape* s);

/* The mean over rows of -log softmax(logits)[target]. Unless scale is 0, logits become scale * d(mean)/d(logits). */
double cross_entropy(float* logits, const uint8_t* targets, int64_t rows, int64_t classes,
                     float scale);

#ifdef __cplusplus
}
#endif

#endif
