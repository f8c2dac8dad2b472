/* SPDX-License-Identifier: Apache-2.0
 * Embedding, layer normalization, GELU and cross-entropy. Attention's kernels are in attention_kernels.c.
 * One row's work is a function compiled for several instruction sets; the parallel loops around them are plain. */
#include "kernels.h"

#include <math.h>
#include <omp.h>
#include <stddef.h>
#include <string.h>

#include "vector.h"

MULTI_TARGET static void row_add(float* out, const float* a, const float* b, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        out[i] = a[i] + b[i];
    }
}

void embed(float* x, const float* wte, const float* wpe, const uint8_t* tokens, int64_t batch,
           int64_t context, int64_t dim) {
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < batch * context; row++) {
        row_add(x + row * dim, wte + tokens[row] * dim, wpe + (row % context) * dim, dim);
    }
}

/* Rows with equal tokens meet in one row of dwte, so threads share the columns, not the rows. */
void embed_backward(float* dwte, float* dwpe, const float* dx, const uint8_t* tokens, int64_t batch,
                    int64_t context, int64_t dim) {
#pragma omp parallel
    {
        const int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
        const int64_t first = dim * me / threads, count = dim * (me + 1) / threads - first;
        for (int64_t row = 0; row < batch * context; row++) {
            float* token = dwte + tokens[row] * dim + first;
            float* position = dwpe + (row % context) * dim + first;
            row_add(token, token, dx + row * dim + first, count);
            row_add(position, position, dx + row * dim + first, count);
        }
    }
}

MULTI_TARGET static void row_layernorm(float* out, const float* x, const LayerNorm* ln, int64_t row,
                                       int64_t n) {
    const float* gain = ln->gain;
    const float* bias = ln->bias;
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        sum += x[i];
    }
    const float mean = sum / (float)n;
    float square = 0.0f;
#pragma omp simd reduction(+ : square)
    for (int64_t i = 0; i < n; i++) {
        const float d = x[i] - mean;
        square += d * d;
    }
    const float rstd = 1.0f / sqrtf(square / (float)n + 1e-5f);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        out[i] = (x[i] - mean) * rstd * gain[i] + bias[i];
    }
    ln->mean[row] = mean;
    ln->rstd[row] = rstd;
}

void add_layernorm(float* out, float* sum, const float* x, const float* delta, const LayerNorm* ln,
                   int64_t rows, int64_t dim) {
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const float* in = x + row * dim;
        if (delta != NULL) {
            row_add(sum + row * dim, in, delta + row * dim, dim);
            in = sum + row * dim;
        }
        row_layernorm(out + row * dim, in, ln, row, dim);
    }
}

/* With xhat = (x - mean) rstd and a = dout gain:  dx = rstd (a - mean(a) - xhat mean(a xhat)). */
MULTI_TARGET static void row_layernorm_backward(float* dx, float* dgain, float* dbias,
                                                const float* dout, const float* x,
                                                const float* gain, float mean, float rstd,
                                                int64_t n, float keep) {
    float sum = 0.0f, dot = 0.0f;
#pragma omp simd reduction(+ : sum, dot)
    for (int64_t i = 0; i < n; i++) {
        const float xhat = (x[i] - mean) * rstd;
        const float a = dout[i] * gain[i];
        dgain[i] += dout[i] * xhat;
        dbias[i] += dout[i];
        sum += a;
        dot += a * xhat;
    }
    sum /= (float)n;
    dot /= (float)n;
    if (keep != 0.0f) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            dx[i] += rstd * (dout[i] * gain[i] - sum - (x[i] - mean) * rstd * dot);
        }
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            dx[i] = rstd * (dout[i] * gain[i] - sum - (x[i] - mean) * rstd * dot);
        }
    }
}

/* Rows are added up in parts whose number is fixed, so that the sums do not depend on the threads. */
void layernorm_backward(float* dx, float* dgain, float* dbias, float* scratch, const float* dout,
                        const float* x, const LayerNorm* ln, int64_t rows, int64_t dim,
                        bool accumulate) {
    memset(scratch, 0, sizeof(float) * 2 * (size_t)(LAYERNORM_PARTS * dim));
#pragma omp parallel for schedule(static)
    for (int64_t part = 0; part < LAYERNORM_PARTS; part++) {
        float* my_gain = scratch + part * 2 * dim;
        for (int64_t row = rows * part / LAYERNORM_PARTS; row < rows * (part + 1) / LAYERNORM_PARTS;
             row++) {
            row_layernorm_backward(dx + row * dim, my_gain, my_gain + dim, dout + row * dim,
                                   x + row * dim, ln->gain, ln->mean[row], ln->rstd[row], dim,
                                   accumulate ? 1.0f : 0.0f);
        }
    }
    for (int64_t part = 0; part < LAYERNORM_PARTS; part++) {
        row_add(dgain, dgain, scratch + part * 2 * dim, dim);
        row_add(dbias, dbias, scratch + part * 2 * dim + dim, dim);
    }
}

/* gelu(z) = z s with s = (1 + tanh(u)) / 2 = 1 / (1 + e^(-2u)), u = sqrt(2/pi) (z + 0.044715 z^3);
 * its derivative is s + z s (1 - s) 2u'. */
MULTI_TARGET static void row_gelu(float* out, float* z, int64_t n) {
    const float a = 1.59576912160573f; /* 2 sqrt(2/pi) */
    const float b = 0.044715f;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float x = z[i];
        const float x2 = x * x;
        const float s = 1.0f / (1.0f + fast_exp(-a * x * (1.0f + b * x2)));
        out[i] = x * s;
        z[i] = s + x * s * (1.0f - s) * a * (1.0f + 3.0f * b * x2);
    }
}

MULTI_TARGET static void row_multiply(float* a, const float* b, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        a[i] *= b[i];
    }
}

enum { CHUNK = 4096 }; /* elements of flat arrays handled at a time: a page of each array */

static int64_t chunk_length(int64_t start, int64_t count) {
    return count - start < CHUNK ? count - start : CHUNK;
}

void gelu(float* out, float* z, int64_t count) {
#pragma omp parallel for schedule(static)
    for (int64_t start = 0; start < count; start += CHUNK) {
        row_gelu(out + start, z + start, chunk_length(start, count));
    }
}

void gelu_backward(float* dout, const float* derivative, int64_t count) {
#pragma omp parallel for schedule(static)
    for (int64_t start = 0; start < count; start += CHUNK) {
        row_multiply(dout + start, derivative + start, chunk_length(start, count));
    }
}

MULTI_TARGET static double row_cross_entropy(float* logits, int64_t target, int64_t n,
                                             float scale) {
    float top = logits[0];
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < n; i++) {
        top = logits[i] > top ? logits[i] : top;
    }
    const float wanted = logits[target];
    float sum = 0.0f;
    if (scale == 0.0f) {
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) {
            sum += fast_exp(logits[i] - top);
        }
    } else {
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) {
            logits[i] = fast_exp(logits[i] - top);
            sum += logits[i];
        }
        const float factor = scale / sum;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            logits[i] *= factor;
        }
        logits[target] -= scale;
    }
    return log((double)sum) + (double)top - (double)wanted;
}

double cross_entropy(float* logits, const uint8_t* targets, int64_t rows, int64_t classes,
                     float scale) {
    enum { PARTS = 64 }; /* as above */
    double losses[PARTS] = {0.0}, loss = 0.0;
#pragma omp parallel for schedule(static)
    for (int64_t part = 0; part < PARTS; part++) {
        double sum = 0.0;
        for (int64_t row = rows * part / PARTS; row < rows * (part + 1) / PARTS; row++) {
            sum += row_cross_entropy(logits + row * classes, targets[row], classes,
                                     scale / (float)rows);
        }
        losses[part] = sum;
    }
    for (int part = 0; part < PARTS; part++) {
        loss += losses[part];
    }
    return loss / (double)rows;
}
