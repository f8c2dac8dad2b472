/* SPDX-License-Identifier: Apache-2.0
 * What every file needs around the library's calls: status checks and tensors together with their memory. */
#ifndef TRAIN_GPT_SUPPORT_H
#define TRAIN_GPT_SUPPORT_H

#include <mixedprec.h>
#include <stdbool.h>
#include <stdint.h>

/* Named in messages where it is not negative: the rank that this thread is. */
extern _Thread_local int support_rank;

/* False for a failure, after printing `call` and the library's message. */
bool succeeded(mp_status status, const char* call);

/* Leave a function that returns bool: after a failed call of the library, with its status in hand, or after a failed
 * function of our own. */
#define TRY(call) TRY_OWN(succeeded((call), #call))
#define TRY_STATUS(status, call) TRY_OWN(succeeded((status), (call)))
#define TRY_OWN(call)                                                                              \
    do {                                                                                           \
        if (!(call)) {                                                                             \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

/* A tensor of the library together with its memory. */
typedef struct {
    mp_tensor* tensor;
    void* memory;
    int64_t count;
} Array;

/* New memory, all zero: [rows, cols], or [rows] with cols 0. */
bool array_create(Array* array, mp_context* context, int32_t dtype, int64_t rows, int64_t cols);
/* A matrix of codes with one power-of-two scale (MS-AMP's), all zero. */
bool array_create_scaled(Array* array, mp_context* context, int32_t dtype, int64_t rows,
                         int64_t cols);
/* fp32 memory that stays the caller's. */
bool array_wrap(Array* array, mp_context* context, float* memory, int64_t rows, int64_t cols);
void array_destroy(Array* array);

/* Rounds, or quantizes or dequantizes where a tensor has scales. One of the two is fp32 without scales. */
bool tensor_convert(const mp_tensor* source, mp_tensor* destination);

static inline float* floats(const Array* array) { return (float*)array->memory; }

#endif
