/* SPDX-License-Identifier: Apache-2.0
 * Attention's products: plans, views of blocks, forward and backward. */
#include "attention.h"

#include <string.h>

static int64_t block_start(const Attention* a, int i) { return i * a->shape.block; }
static int64_t block_end(const Attention* a, int i) {
    const int64_t end = (i + 1) * a->shape.block;
    return end < a->shape.context ? end : a->shape.context;
}

/* One product for every head; ld and stride say which kind of array an operand is: heads or matrices. */
typedef struct {
    uint32_t flags;
    int64_t m, n, k;
    bool a_matrix, b_matrix, d_matrix;
} Product;

static bool plan(mp_gemm** out, mp_context* context, const AttentionShape* s, Product p) {
    const int64_t heads = s->context * s->head_dim, matrix = s->context * s->context;
    mp_gemm_desc d = MP_GEMM_DESC_INIT;
    d.flags = p.flags;
    d.m = p.m;
    d.n = p.n;
    d.k = p.k;
    d.lda = p.a_matrix ? s->context : s->head_dim;
    d.ldb = p.b_matrix ? s->context : s->head_dim;
    d.ldd = p.d_matrix ? s->context : s->head_dim;
    d.batch_count = s->batch * s->heads;
    d.batch_stride_a = p.a_matrix ? matrix : heads;
    d.batch_stride_b = p.b_matrix ? matrix : heads;
    d.batch_stride_d = p.d_matrix ? matrix : heads;
    d.dtype_a = MP_DTYPE_FP32;
    d.dtype_b = MP_DTYPE_FP32;
    d.dtype_d = MP_DTYPE_FP32;
    TRY(mp_gemm_create(context, &d, out));
    return true;
}

bool attention_create(Attention* a, mp_context* context, AttentionShape shape, bool backward) {
    const int64_t n = shape.head_dim;
    memset(a, 0, sizeof *a);
    a->shape = shape;
    a->blocks = (int)((shape.context + shape.block - 1) / shape.block);
    for (int i = 0; i < a->blocks; i++) {
        const int64_t rows = block_end(a, i) - block_start(a, i), end = block_end(a, i);
        const int64_t below =
            shape.context - block_start(a, i); /* rows that see the columns of this block */
        const Product scores = {MP_GEMM_TRANS_B, rows, end, n, false, false, true};
        const Product mix = {0, rows, n, end, true, false, false};
        const Product transposed = {MP_GEMM_TRANS_A, rows, n, below, true, false, false};
        TRY_OWN(plan(&a->scores[i], context, &a->shape, scores));
        TRY_OWN(plan(&a->mix[i], context, &a->shape, mix));
        if (backward) {
            TRY_OWN(plan(&a->dprob[i], context, &a->shape, scores));
            TRY_OWN(plan(&a->dq[i], context, &a->shape, mix));
            TRY_OWN(plan(&a->dv[i], context, &a->shape, transposed));
            TRY_OWN(plan(&a->dk[i], context, &a->shape, transposed));
        }
    }
    return true;
}

void attention_destroy(Attention* a) {
    for (int i = 0; i < MAX_BLOCKS; i++) {
        mp_gemm_destroy(a->scores[i]);
        mp_gemm_destroy(a->mix[i]);
        mp_gemm_destroy(a->dprob[i]);
        mp_gemm_destroy(a->dv[i]);
        mp_gemm_destroy(a->dq[i]);
        mp_gemm_destroy(a->dk[i]);
    }
    memset(a, 0, sizeof *a);
}

static bool blocked_create(Blocked* b, mp_context* context, const Attention* a, int64_t width,
                           bool diagonal) {
    memset(b, 0, sizeof *b);
    const int64_t count = a->shape.batch * a->shape.heads * a->shape.context * width;
    TRY_OWN(array_create(&b->whole, context, MP_DTYPE_FP32, count, 0));
    for (int i = 0; i < a->blocks; i++) {
        const int64_t start = block_start(a, i);
        const int64_t row = start * width, corner = start * width + start;
        TRY_OWN(array_wrap(&b->rows[i], context, floats(&b->whole) + row, count - row, 0));
        if (diagonal) {
            TRY_OWN(array_wrap(&b->diagonal[i], context, floats(&b->whole) + corner, count - corner,
                               0));
        }
    }
    return true;
}

bool blocked_heads(Blocked* b, mp_context* context, const Attention* a) {
    return blocked_create(b, context, a, a->shape.head_dim, false);
}

bool blocked_matrices(Blocked* b, mp_context* context, const Attention* a) {
    return blocked_create(b, context, a, a->shape.context, true);
}

void blocked_destroy(Blocked* b) {
    for (int i = 0; i < MAX_BLOCKS; i++) {
        array_destroy(&b->rows[i]);
        array_destroy(&b->diagonal[i]);
    }
    array_destroy(&b->whole);
}

static mp_status run(mp_gemm* gemm, const Array* a, const Array* b, const Array* d) {
    return mp_gemm_run(gemm, NULL, a->tensor, b->tensor, NULL, NULL, d->tensor);
}

bool attention_forward(Attention* a, Blocked* out, Blocked* prob, const Blocked* q,
                       const Blocked* k, const Blocked* v) {
    for (int i = 0; i < a->blocks; i++) {
        TRY(run(a->scores[i], &q->rows[i], &k->whole, &prob->rows[i]));
    }
    causal_softmax(floats(&prob->whole), &a->shape);
    for (int i = 0; i < a->blocks; i++) {
        TRY(run(a->mix[i], &prob->rows[i], &v->whole, &out->rows[i]));
    }
    return true;
}

bool attention_backward(Attention* a, Blocked* dq, Blocked* dk, Blocked* dv, Blocked* dscores,
                        const Blocked* dout, const Blocked* prob, const Blocked* q,
                        const Blocked* k, const Blocked* v) {
    for (int i = 0; i < a->blocks; i++) {
        TRY(run(a->dprob[i], &dout->rows[i], &v->whole, &dscores->rows[i]));
        TRY(run(a->dv[i], &prob->diagonal[i], &dout->rows[i], &dv->rows[i]));
    }
    causal_softmax_backward(floats(&dscores->whole), floats(&prob->whole), &a->shape);
    for (int i = 0; i < a->blocks; i++) {
        TRY(run(a->dq[i], &dscores->rows[i], &k->whole, &dq->rows[i]));
        TRY(run(a->dk[i], &dscores->diagonal[i], &q->rows[i], &dk->rows[i]));
    }
    return true;
}
