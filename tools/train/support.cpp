// SPDX-License-Identifier: Apache-2.0
// Status checks and tensors.
#include "support.hpp"

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "text.hpp"

namespace train {

thread_local int this_rank = -1;

std::string format(const char* text, ...) {
    va_list arguments;
    va_list again;
    va_start(arguments, text);
    va_copy(again, arguments);
    std::string made(size(vsnprintf(nullptr, 0, text, arguments)), '\0');
    vsnprintf(made.data(), made.size() + 1, text, again);
    va_end(again);
    va_end(arguments);
    return made;
}

std::vector<std::pair<std::string, int64_t>> states_of(const mp_memory_report& report) {
    std::vector<std::pair<std::string, int64_t>> states;
    for (int32_t k = 0; mp_rule_state_name(k) != nullptr; ++k) {
        states.emplace_back(mp_rule_state_name(k), report.state_bytes[k]);
    }
    return states;
}

mp_status check(mp_status status, const char* call) {
    if (status < 0) {
        throw Failure(std::string_view(call).substr(0, std::strcspn(call, "(")), ": ",
                      mp_status_string(status), ": ", mp_last_error_message());
    }
    return status;
}

void print_failure(const std::exception& error) {
    const std::string rank = this_rank >= 0 ? join("rank ", this_rank, ": ") : "";
    print(stderr, join("mixedprec_train: ", rank, clean(error.what()), "\n"));
}

static mp_tensor_desc describe(int32_t dtype, int64_t rows, int64_t cols) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    desc.dtype = dtype;
    desc.ndim = cols > 0 ? 2 : 1;
    desc.shape[0] = rows;
    desc.shape[1] = cols;
    return desc;
}

static Array with_count(int64_t rows, int64_t cols) {
    Array array;
    array.count = rows * (cols > 0 ? cols : 1);
    return array;
}

Array make_array(mp_context* context, int32_t dtype, int64_t rows, int64_t cols) {
    const mp_tensor_desc desc = describe(dtype, rows, cols);
    Array array = with_count(rows, cols);
    MP_CHECK(mp_tensor_create(context, &desc, out(array.tensor)));
    MP_CHECK(mp_tensor_get_data(array.tensor.get(), &array.memory));
    return array;
}

Array make_scaled_array(mp_context* context, int32_t dtype, int64_t rows, int64_t cols) {
    const mp_tensor_desc desc = describe(dtype, rows, cols);
    mp_quant_desc quant = MP_QUANT_DESC_INIT;
    quant.rule = MP_SCALE_RULE_MSAMP;
    Array array = with_count(rows, cols);
    MP_CHECK(mp_tensor_create_quantized(context, &desc, &quant, out(array.tensor)));
    MP_CHECK(mp_tensor_get_data(array.tensor.get(), &array.memory));
    return array;
}

Array make_weight_codes(mp_context* context, const mp_recipe* recipe, int64_t rows, int64_t cols,
                        const float* values) {
    const std::array<int64_t, 2> shape = {rows, cols};
    Array array = with_count(rows, cols);
    MP_CHECK(
        mp_recipe_create_weight_codes(context, recipe, 2, shape.data(), values, out(array.tensor)));
    MP_CHECK(mp_tensor_get_data(array.tensor.get(), &array.memory));
    return array;
}

Array wrap_array(mp_context* context, float* memory, int64_t rows, int64_t cols) {
    const mp_tensor_desc desc = describe(MP_DTYPE_FP32, rows, cols);
    Array array = with_count(rows, cols);
    array.memory = memory;
    MP_CHECK(mp_tensor_wrap(context, &desc, memory, nullptr, nullptr, out(array.tensor)));
    return array;
}

static bool is_scaled(const mp_tensor* tensor) {
    mp_quant_desc desc = MP_QUANT_DESC_INIT;
    return mp_tensor_get_quant_desc(tensor, &desc) >= 0;
}

void convert(const mp_tensor* source, mp_tensor* destination) {
    if (is_scaled(destination)) {
        MP_CHECK(mp_tensor_quantize(source, nullptr, destination, nullptr, nullptr, nullptr));
    } else if (is_scaled(source)) {
        MP_CHECK(mp_tensor_dequantize(source, nullptr, destination));
    } else {
        MP_CHECK(mp_tensor_cast(source, nullptr, destination, nullptr));
    }
}

std::string recipe_string(const mp_recipe* recipe, const char* key) {
    const char* value = nullptr;
    MP_CHECK(mp_recipe_get_string(recipe, key, &value));
    return value;
}

int32_t dtype_by_name(const std::string& name, bool* scaled) {
    const size_t suffix = name.find("_scaled");
    if (scaled != nullptr) {
        *scaled = suffix != std::string::npos;
    }
    for (int32_t dtype = MP_DTYPE_FP32; dtype <= MP_DTYPE_FP8_E5M2; dtype++) {
        if (name.substr(0, suffix) == mp_dtype_name(dtype)) {
            return dtype;
        }
    }
    return MP_DTYPE_NONE;
}

} // namespace train
