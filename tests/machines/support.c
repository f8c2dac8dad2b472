/* SPDX-License-Identifier: Apache-2.0
 * The helpers of bits.h. */
#include "bits.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void check(mp_status status, const char* call) {
    if (status < 0) {
        fflush(stdout);
        fprintf(stderr, "%s: %s: %s\n", call, mp_status_string(status), mp_last_error_message());
        exit(1);
    }
}

uint32_t next_bits(uint32_t* state) {
    *state = *state * 1664525U + 1013904223U;
    /* The low bits of such a generator repeat soon. */
    return (*state >> 16) | (*state << 16);
}

void fill_numbers(float* out, size_t count, uint32_t seed, float size) {
    uint32_t state = seed;
    size_t i = 0;
    for (i = 0; i < count; ++i) {
        const int32_t number = (int32_t)(next_bits(&state) >> 7) - (1 << 24);
        out[i] = (float)number * 5.9604644775390625e-8F * size; /* 2^-24 */
    }
}

/* FNV-1a over words of 8 bytes, with a shift so that upper bits reach the lower ones. */
static uint64_t hash_of(const void* bytes, size_t count) {
    const unsigned char* at = bytes;
    uint64_t hash = 14695981039346656037U;
    size_t i = 0;
    for (i = 0; i < count; i += sizeof(uint64_t)) {
        uint64_t word = 0;
        memcpy(&word, at + i, count - i < sizeof word ? count - i : sizeof word);
        hash = (hash ^ word) * 1099511628211U;
        hash ^= hash >> 32;
    }
    return hash;
}

void show(const void* bytes, size_t count, const char* name, ...) {
    va_list list;
    va_start(list, name);
    vprintf(name, list);
    va_end(list);
    printf(" %016llx\n", (unsigned long long)hash_of(bytes, count));
}

void show_tensor(const char* group, const char* name, const mp_tensor* tensor) {
    show(data_of(tensor), bytes_of(tensor), "%s.%s", group, name);
}

mp_tensor* make(Bits* bits, int32_t dtype, int64_t rows, int64_t columns) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    mp_tensor* tensor = NULL;
    desc.dtype = dtype;
    desc.ndim = rows == 0 ? 1 : 2;
    desc.shape[0] = rows == 0 ? columns : rows;
    desc.shape[1] = rows == 0 ? 0 : columns;
    OK(mp_tensor_create(bits->context, &desc, &tensor));
    return tensor;
}

mp_tensor* make_numbers(Bits* bits, int32_t dtype, int64_t rows, int64_t columns, uint32_t seed,
                        float size) {
    mp_tensor* exact = make(bits, MP_DTYPE_FP32, rows, columns);
    mp_tensor* rounded = NULL;
    fill_numbers(data_of(exact), (size_t)((rows == 0 ? 1 : rows) * columns), seed, size);
    if (dtype == MP_DTYPE_FP32) {
        return exact;
    }
    rounded = make(bits, dtype, rows, columns);
    OK(mp_tensor_cast(exact, NULL, rounded, NULL));
    mp_tensor_destroy(exact);
    return rounded;
}

mp_tensor* make_quantized(Bits* bits, int32_t dtype, int64_t rows, int64_t columns,
                          const mp_quant_desc* quant) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    mp_tensor* tensor = NULL;
    mp_status status = MP_STATUS_OK;
    desc.dtype = dtype;
    desc.ndim = 2;
    desc.shape[0] = rows;
    desc.shape[1] = columns;
    status = mp_tensor_create_quantized(bits->context, &desc, quant, &tensor);
    if (status != MP_STATUS_INVALID_ARGUMENT && status != MP_STATUS_INVALID_DTYPE) {
        OK(status);
    }
    return status < 0 ? NULL : tensor;
}

void assign(mp_tensor* to, const mp_tensor* from) {
    mp_quant_desc quant = MP_QUANT_DESC_INIT;
    if (mp_tensor_get_quant_desc(to, &quant) >= 0) {
        OK(mp_tensor_quantize(from, NULL, to, NULL, NULL, NULL));
    } else {
        OK(mp_tensor_cast(from, NULL, to, NULL));
    }
}

void* data_of(const mp_tensor* tensor) {
    void* data = NULL;
    OK(mp_tensor_get_data(tensor, &data));
    return data;
}

size_t bytes_of(const mp_tensor* tensor) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    size_t count = 1;
    int32_t i = 0;
    OK(mp_tensor_get_desc(tensor, &desc));
    for (i = 0; i < desc.ndim; ++i) {
        count *= (size_t)desc.shape[i];
    }
    return desc.dtype == MP_DTYPE_FP4_E2M1 ? (count + 1) / 2 : count * mp_dtype_size(desc.dtype);
}
