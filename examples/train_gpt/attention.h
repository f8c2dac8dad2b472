/* SPDX-License-Identifier: Apache-2.0
 * Causal attention on separate heads, [batch * heads, context, head_dim], by batched products of the library.
 *
 * The context is cut into at most 4 blocks of rows. A row never looks to the right of its own block, so each product
 * covers one block of rows and the columns up to its end: 10/16 of the work of the full square. */
#ifndef TRAIN_GPT_ATTENTION_H
#define TRAIN_GPT_ATTENTION_H

#include "kernels.h"
#include "support.h"

enum { MAX_BLOCKS = 4 };

/* One array of heads or of [context, context] matrices, with the tensors that begin at each block of rows (and, for
 * matrices, at the block on the diagonal). */
typedef struct {
    Array whole;
    Array rows[MAX_BLOCKS];
    Array diagonal[MAX_BLOCKS];
} Blocked;

typedef struct {
    AttentionShape shape;
    int blocks;
    mp_gemm* scores[MAX_BLOCKS]; /* q k^T */
    mp_gemm* mix[MAX_BLOCKS];    /* prob v */
    mp_gemm* dprob[MAX_BLOCKS];  /* dout v^T */
    mp_gemm* dv[MAX_BLOCKS];     /* prob^T dout */
    mp_gemm* dq[MAX_BLOCKS];     /* dscores k */
    mp_gemm* dk[MAX_BLOCKS];     /* dscores^T q */
} Attention;

bool attention_create(Attention* a, mp_context* context, AttentionShape shape, bool backward);
void attention_destroy(Attention* a);

bool blocked_heads(Blocked* b, mp_context* context, const Attention* a);
bool blocked_matrices(Blocked* b, mp_context* context, const Attention* a);
void blocked_destroy(Blocked* b);

/* prob = causal softmax(q k^T), out = prob v; q comes with its factor 1 / sqrt(head_dim). */
bool attention_forward(Attention* a, Blocked* out, Blocked* prob, const Blocked* q,
                       const Blocked* k, const Blocked* v);
/* Gradients of q, k and v, overwritten; dscores is scratch. */
bool attention_backward(Attention* a, Blocked* dq, Blocked* dk, Blocked* dv, Blocked* dscores,
                        const Blocked* dout, const Blocked* prob, const Blocked* q,
                        const Blocked* k, const Blocked* v);

#endif
