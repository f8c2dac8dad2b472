/* SPDX-License-Identifier: Apache-2.0
 * Status checks and tensors. */
#include "support.h"

#include <stdio.h>
#include <string.h>

_Thread_local int support_rank = -1;

bool succeeded(mp_status status, const char* call) {
    if (status < 0) {
        char rank[32] = "";
        if (support_rank >= 0) {
            snprintf(rank, sizeof rank, "rank %d: ", support_rank);
        }
        fprintf(stderr, "train_gpt: %s%.*s: %s: %s\n", rank, (int)strcspn(call, "("), call,
                mp_status_string(status), mp_last_error_message());
    }
    return status >= 0;
}

static mp_tensor_desc describe(int32_t dtype, int64_t rows, int64_t cols) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    desc.dtype = dtype;
    desc.ndim = cols > 0 ? 2 : 1;
    desc.shape[0] = rows;
    desc.shape[1] = cols;
    return desc;
}

bool array_create(Array* array, mp_context* context, int32_t dtype, int64_t rows, int64_t cols) {
    const mp_tensor_desc desc = describe(dtype, rows, cols);
    array->count = rows * (cols > 0 ? cols : 1);
    TRY(mp_tensor_create(context, &desc, &array->tensor));
    TRY(mp_tensor_data(array->tensor, &array->memory));
    return true;
}

bool array_create_scaled(Array* array, mp_context* context, int32_t dtype, int64_t rows,
                         int64_t cols) {
    const mp_tensor_desc desc = describe(dtype, rows, cols);
    mp_quant_desc quant = MP_QUANT_DESC_INIT;
    quant.rule = MP_SCALE_RULE_MSAMP;
    array->count = rows * cols;
    TRY(mp_tensor_create_quantized(context, &desc, &quant, &array->tensor));
    TRY(mp_tensor_data(array->tensor, &array->memory));
    return true;
}

bool array_wrap(Array* array, mp_context* context, float* memory, int64_t rows, int64_t cols) {
    const mp_tensor_desc desc = describe(MP_DTYPE_FP32, rows, cols);
    array->count = rows * (cols > 0 ? cols : 1);
    array->memory = memory;
    TRY(mp_tensor_wrap(context, &desc, memory, NULL, NULL, &array->tensor));
    return true;
}

static bool is_scaled(const mp_tensor* tensor) {
    mp_quant_desc desc = MP_QUANT_DESC_INIT;
    return mp_tensor_get_quant_desc(tensor, &desc) >= 0;
}

bool tensor_convert(const mp_tensor* source, mp_tensor* destination) {
    if (is_scaled(destination)) {
        TRY(mp_tensor_quantize(NULL, source, destination, NULL, NULL));
    } else if (is_scaled(source)) {
        TRY(mp_tensor_dequantize(NULL, source, destination));
    } else {
        TRY(mp_tensor_cast(NULL, source, destination, NULL));
    }
    return true;
}

void array_destroy(Array* array) {
    mp_tensor_destroy(array->tensor);
    memset(array, 0, sizeof *array);
}
