/* SPDX-License-Identifier: Apache-2.0
 * What the frames around the pages' snippets share. */
#ifndef FRAME_H
#define FRAME_H

#include <mixedprec.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* README.md shows it; the frames around that page take it from there. */
#ifndef FRAME_WITHOUT_TRY
#define MP_TRY(call)                                                                               \
    do {                                                                                           \
        mp_status s_ = (call);                                                                     \
        if (s_ != 0)                                                                               \
            fprintf(stderr, "%s: %s\n", mp_status_string(s_), mp_last_error_message());            \
        if (s_ < 0)                                                                                \
            exit(1);                                                                               \
    } while (0)
#endif

static inline void must(int holds, const char* what) {
    if (!holds) {
        fprintf(stderr, "this does not hold: %s; last message: %s\n", what,
                mp_last_error_message());
        exit(1);
    }
}

static inline void fill(float* a, int64_t count, uint32_t seed) {
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        a[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
}

/* A matrix of floats in this program's memory as a tensor; a vector where rows is 0. */
static inline mp_tensor* wrapped(mp_context* context, float* data, int64_t rows, int64_t columns) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    mp_tensor* tensor = NULL;
    desc.dtype = MP_DTYPE_FP32;
    desc.ndim = rows > 0 ? 2 : 1;
    desc.shape[0] = rows > 0 ? rows : columns;
    desc.shape[1] = rows > 0 ? columns : 0;
    must(mp_tensor_wrap(context, &desc, data, NULL, NULL, &tensor) == 0, "a tensor over data");
    return tensor;
}

#endif
