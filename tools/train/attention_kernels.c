/* SPDX-License-Identifier: Apache-2.0
 * What attention computes besides matrix products: moving heads apart and together, and the causal softmax. */
#include <math.h>
#include <stddef.h>

#include "kernels.h"
#include "vector.h"

MULTI_TARGET static void row_scale(float* out, const float* in, int64_t n, float factor) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        out[i] = in[i] * factor;
    }
}

/* Offset of head h of token `row` in an array of separate heads. */
static int64_t head_offset(const AttentionShape* s, int64_t row, int64_t h) {
    return (((row / s->context) * s->heads + h) * s->context + row % s->context) * s->head_dim;
}

void heads_from_rows(float* heads, const float* rows, int64_t stride, float factor,
                     const AttentionShape* s) {
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < s->batch * s->context; row++) {
        for (int64_t h = 0; h < s->heads; h++) {
            row_scale(heads + head_offset(s, row, h), rows + row * stride + h * s->head_dim,
                      s->head_dim, factor);
        }
    }
}

void rows_from_heads(float* rows, const float* heads, int64_t stride, float factor,
                     const AttentionShape* s) {
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < s->batch * s->context; row++) {
        for (int64_t h = 0; h < s->heads; h++) {
            row_scale(rows + row * stride + h * s->head_dim, heads + head_offset(s, row, h),
                      s->head_dim, factor);
        }
    }
}

MULTI_TARGET static void row_softmax(float* x, int64_t valid, int64_t width) {
    float top = x[0];
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < valid; i++) {
        top = x[i] > top ? x[i] : top;
    }
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < valid; i++) {
        x[i] = fast_exp(x[i] - top);
        sum += x[i];
    }
    const float factor = 1.0f / sum;
#pragma omp simd
    for (int64_t i = 0; i < valid; i++) {
        x[i] *= factor;
    }
#pragma omp simd
    for (int64_t i = valid; i < width; i++) {
        x[i] = 0.0f;
    }
}

/* dscore = p (dp - sum(dp p)). Behind `valid`, where p is 0, dp may be anything. */
MULTI_TARGET static void row_softmax_backward(float* dp, const float* p, int64_t valid,
                                              int64_t width) {
    float dot = 0.0f;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < valid; i++) {
        dot += dp[i] * p[i];
    }
#pragma omp simd
    for (int64_t i = 0; i < valid; i++) {
        dp[i] = p[i] * (dp[i] - dot);
    }
#pragma omp simd
    for (int64_t i = valid; i < width; i++) {
        dp[i] = 0.0f;
    }
}

static int64_t block_end(int64_t t, const AttentionShape* s) {
    const int64_t end = (t / s->block + 1) * s->block;
    return end < s->context ? end : s->context;
}

/* Matrices are dealt out whole: their rows differ in length. */
void causal_softmax(float* scores, const AttentionShape* s) {
    const int64_t n = s->context;
#pragma omp parallel for schedule(static)
    for (int64_t matrix = 0; matrix < s->batch * s->heads; matrix++) {
        for (int64_t t = 0; t < n; t++) {
            row_softmax(scores + (matrix * n + t) * n, t + 1, block_end(t, s));
        }
    }
}

void causal_softmax_backward(float* dprob, const float* prob, const AttentionShape* s) {
    const int64_t n = s->context;
#pragma omp parallel for schedule(static)
    for (int64_t matrix = 0; matrix < s->batch * s->heads; matrix++) {
        for (int64_t t = 0; t < n; t++) {
            const int64_t at = (matrix * n + t) * n;
            row_softmax_backward(dprob + at, prob + at, t + 1, block_end(t, s));
        }
    }
}
