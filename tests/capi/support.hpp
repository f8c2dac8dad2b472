// SPDX-License-Identifier: Apache-2.0
// Handles that destroy themselves and are made in one line, tensors and their values, and checks that show the library's own
// words.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "mixedprec.h"

namespace mp_test {

template <typename T, void (*Destroy)(T*)> struct Handle {
    struct Deleter {
        void operator()(T* handle) const { Destroy(handle); }
    };
    std::unique_ptr<T, Deleter> owned;
    Handle() = default;
    explicit Handle(T* handle) : owned(handle) {}
    operator T*() const { return owned.get(); } // NOLINT: reads like the C handle
};

using Context = Handle<mp_context, mp_context_destroy>;
using Queue = Handle<mp_queue, mp_queue_destroy>;
using Event = Handle<mp_event, mp_event_destroy>;
using Tensor = Handle<mp_tensor, mp_tensor_destroy>;
using Recipe = Handle<mp_recipe, mp_recipe_destroy>;
using Gemm = Handle<mp_gemm, mp_gemm_destroy>;
using Linear = Handle<mp_linear, mp_linear_destroy>;
using Saved = Handle<mp_saved, mp_saved_destroy>;
using Adapter = Handle<mp_adapter, mp_adapter_destroy>;
using StepPlan = Handle<mp_step_plan, mp_step_plan_destroy>;
using Scaler = Handle<mp_scaler, mp_scaler_destroy>;
using Checkpoint = Handle<mp_checkpoint, mp_checkpoint_destroy>;
using Optimizer = Handle<mp_optimizer, mp_optimizer_destroy>;

// The backends on host memory that this build has.
#if MP_HAS_KOKKOS
inline constexpr const char* kHostBackends[] = {"reference", "host", "kokkos"};
#else
inline constexpr const char* kHostBackends[] = {"reference", "host"};
#endif

inline ::testing::AssertionResult succeeded(mp_status status) {
    if (status == MP_STATUS_OK) {
        return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure()
           << mp_status_string(status) << ": " << mp_last_error_message();
}

// The same, or with a note.
inline ::testing::AssertionResult done(mp_status status) {
    return status > 0 ? ::testing::AssertionSuccess() : succeeded(status);
}

// The call fails with this code and its message holds every one of the words.
inline ::testing::AssertionResult fails(mp_status status, mp_status expected,
                                        const std::vector<std::string>& words,
                                        const std::string& text) {
    if (status != expected) {
        return ::testing::AssertionFailure()
               << "expected " << mp_status_string(expected) << ", got " << mp_status_string(status)
               << ": " << text;
    }
    for (const std::string& word : words) {
        if (text.find(word) == std::string::npos) {
            return ::testing::AssertionFailure() << "'" << word << "' is not in: " << text;
        }
    }
    return ::testing::AssertionSuccess();
}
inline ::testing::AssertionResult fails(mp_status status, mp_status expected,
                                        const std::vector<std::string>& words) {
    return fails(status, expected, words, mp_last_error_message());
}

#define MP_OK(call) ASSERT_TRUE(::mp_test::succeeded(call))
#define MP_FAILS(call, code, ...)                                                                  \
    EXPECT_TRUE(::mp_test::fails(call, code, std::vector<std::string>{__VA_ARGS__}))

// What call(buffer, capacity, &needed) writes, by asking how much that is first.
template <class Call> std::string written_by(const Call& call, mp_status expected = MP_STATUS_OK) {
    std::size_t needed = 1;
    EXPECT_EQ(call(nullptr, 0, &needed), expected) << mp_last_error_message();
    std::string text(needed, '?');
    EXPECT_EQ(call(text.data(), text.size(), nullptr), expected) << mp_last_error_message();
    EXPECT_EQ(text.back(), '\0');
    text.pop_back();
    return text;
}

inline Context make_context(int32_t num_threads = 2, const char* backend = nullptr) {
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.num_threads = num_threads;
    desc.backend = backend;
    mp_context* context = nullptr;
    EXPECT_TRUE(succeeded(mp_context_create(&desc, &context)));
    return Context(context);
}

inline Recipe make_recipe(mp_context* context, const char* name) {
    mp_recipe* recipe = nullptr;
    EXPECT_TRUE(succeeded(mp_recipe_create(context, name, &recipe)));
    return Recipe(recipe);
}

// Of a preset's name, or of JSON.
inline Recipe recipe_of(mp_context* context, const std::string& text) {
    if (text.find('{') == std::string::npos) {
        return make_recipe(context, text.c_str());
    }
    mp_recipe* recipe = nullptr;
    EXPECT_TRUE(succeeded(mp_recipe_create_from_json(context, text.data(), text.size(), &recipe)));
    return Recipe(recipe);
}

// Of a key whose value is a type of numbers.
inline int32_t recipe_dtype(mp_recipe* recipe, const char* key) {
    const char* name = nullptr;
    EXPECT_TRUE(succeeded(mp_recipe_get_string(recipe, key, &name)));
    return std::string(name) == "fp32"   ? MP_DTYPE_FP32
           : std::string(name) == "fp16" ? MP_DTYPE_FP16
                                         : MP_DTYPE_BF16;
}

inline int32_t weight_dtype(mp_recipe* recipe) {
    return recipe_dtype(recipe, MP_RECIPE_WEIGHT_DTYPE);
}

// Without groups. `desc` NULL: the defaults.
inline Optimizer make_optimizer(mp_context* context, mp_recipe* recipe,
                                const mp_optimizer_desc* desc = nullptr) {
    mp_optimizer* made = nullptr;
    EXPECT_TRUE(succeeded(mp_optimizer_create(context, recipe, desc, &made)));
    return Optimizer(made);
}
inline Optimizer make_optimizer(mp_context* context, mp_recipe* recipe,
                                const mp_optimizer_desc& desc) {
    return make_optimizer(context, recipe, &desc);
}

// `desc` NULL: the defaults.
inline Scaler make_scaler(mp_context* context, const mp_scaler_desc* desc = nullptr) {
    mp_scaler* made = nullptr;
    EXPECT_TRUE(succeeded(mp_scaler_create(context, desc, &made)));
    return Scaler(made);
}
inline Scaler make_scaler(mp_context* context, const mp_scaler_desc& desc) {
    return make_scaler(context, &desc);
}

inline Queue make_queue(mp_context* context) {
    mp_queue* made = nullptr;
    EXPECT_TRUE(succeeded(mp_queue_create(context, &made)));
    return Queue(made);
}

inline Gemm make_gemm(mp_context* context, const mp_gemm_desc& desc) {
    mp_gemm* made = nullptr;
    EXPECT_TRUE(succeeded(mp_gemm_create(context, &desc, &made)));
    return Gemm(made);
}

inline mp_tensor_desc tensor_desc(int32_t dtype, const std::vector<int64_t>& shape) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    desc.dtype = dtype;
    desc.ndim = static_cast<int32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), desc.shape);
    return desc;
}

inline Tensor make_tensor(mp_context* context, int32_t dtype, const std::vector<int64_t>& shape) {
    const mp_tensor_desc desc = tensor_desc(dtype, shape);
    mp_tensor* tensor = nullptr;
    EXPECT_TRUE(succeeded(mp_tensor_create(context, &desc, &tensor)));
    return Tensor(tensor);
}

// Type and shape alone.
inline Tensor make_deferred(mp_context* context, int32_t dtype, const std::vector<int64_t>& shape) {
    mp_tensor_desc desc = tensor_desc(dtype, shape);
    desc.flags = MP_TENSOR_DEFERRED;
    mp_tensor* tensor = nullptr;
    EXPECT_TRUE(succeeded(mp_tensor_create(context, &desc, &tensor)));
    return Tensor(tensor);
}

// `quant` NULL: the defaults.
inline Tensor make_quantized(mp_context* context, int32_t dtype, const std::vector<int64_t>& shape,
                             const mp_quant_desc* quant, uint32_t flags = 0) {
    mp_tensor_desc desc = tensor_desc(dtype, shape);
    desc.flags = flags;
    mp_tensor* tensor = nullptr;
    EXPECT_TRUE(succeeded(mp_tensor_create_quantized(context, &desc, quant, &tensor)));
    return Tensor(tensor);
}

// An fp32 tensor with these values, then cast to `dtype`.
inline Tensor make_tensor(mp_context* context, int32_t dtype, const std::vector<int64_t>& shape,
                          const std::vector<float>& values) {
    Tensor exact = make_tensor(context, MP_DTYPE_FP32, shape);
    EXPECT_TRUE(
        succeeded(mp_tensor_write(exact, nullptr, values.data(), values.size() * sizeof(float))));
    if (dtype == MP_DTYPE_FP32) {
        return exact;
    }
    Tensor rounded = make_tensor(context, dtype, shape);
    EXPECT_TRUE(succeeded(mp_tensor_cast(exact, nullptr, rounded, nullptr)));
    return rounded;
}

// Over memory of the test's.
inline Tensor wrap_tensor(mp_context* context, int32_t dtype, const std::vector<int64_t>& shape,
                          void* data) {
    const mp_tensor_desc desc = tensor_desc(dtype, shape);
    mp_tensor* tensor = nullptr;
    EXPECT_TRUE(succeeded(mp_tensor_wrap(context, &desc, data, nullptr, nullptr, &tensor)));
    return Tensor(tensor);
}

// Elements from `offset` on.
inline Tensor view_of(mp_tensor* tensor, int64_t offset, const std::vector<int64_t>& shape) {
    mp_tensor* raw = nullptr;
    EXPECT_TRUE(succeeded(mp_tensor_create_view(tensor, offset, static_cast<int32_t>(shape.size()),
                                                shape.data(), &raw)));
    return Tensor(raw);
}

inline void* data_of(mp_tensor* tensor) {
    void* data = nullptr;
    EXPECT_TRUE(succeeded(mp_tensor_get_data(tensor, &data)));
    return data;
}

// Numbers of an fp32 tensor into one of any type, rounded to it.
inline void round_into(mp_tensor* exact, mp_tensor* to) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    EXPECT_TRUE(succeeded(mp_tensor_get_desc(to, &desc)));
    EXPECT_TRUE(succeeded(desc.dtype == MP_DTYPE_FP32
                              ? mp_tensor_copy(exact, nullptr, to)
                              : mp_tensor_cast(exact, nullptr, to, nullptr)));
}

// Of codes: their scales, and the amaxes beside them.
inline Tensor scales_of(mp_tensor* codes) {
    mp_tensor* scales = nullptr;
    EXPECT_TRUE(succeeded(mp_tensor_get_scales(codes, &scales)));
    return Tensor(scales);
}
inline Tensor amax_of(mp_tensor* codes) {
    mp_tensor* amax = nullptr;
    EXPECT_TRUE(succeeded(mp_tensor_get_quantized_amax(codes, &amax)));
    return Tensor(amax);
}

inline std::vector<unsigned char> bytes_of(mp_tensor* tensor) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    EXPECT_TRUE(succeeded(mp_tensor_get_desc(tensor, &desc)));
    int64_t count = 1;
    for (int32_t i = 0; i < desc.ndim; ++i) {
        count *= desc.shape[i];
    }
    std::vector<unsigned char> data(mp_dtype_bytes(desc.dtype, count));
    EXPECT_TRUE(succeeded(mp_tensor_read(tensor, nullptr, data.data(), data.size())));
    return data;
}

// The values as fp32, through the library's own widening cast.
inline std::vector<float> values_of(mp_context* context, mp_tensor* tensor) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    EXPECT_TRUE(succeeded(mp_tensor_get_desc(tensor, &desc)));
    std::vector<unsigned char> raw;
    if (desc.dtype == MP_DTYPE_FP32) {
        raw = bytes_of(tensor);
    } else {
        desc.dtype = MP_DTYPE_FP32;
        mp_tensor* wide = nullptr;
        EXPECT_TRUE(succeeded(mp_tensor_create(context, &desc, &wide)));
        const Tensor owned(wide);
        EXPECT_TRUE(succeeded(mp_tensor_cast(tensor, nullptr, wide, nullptr)));
        raw = bytes_of(wide);
    }
    std::vector<float> values(raw.size() / sizeof(float));
    if (!raw.empty()) {
        std::memcpy(values.data(), raw.data(), raw.size());
    }
    return values;
}

// Numbers in [-1, 1) that need all their bits, times a scale; the same in every run (splitmix64).
inline std::vector<float> numbers(std::size_t count, uint64_t seed, float scale = 1.0F) {
    std::vector<float> values(count);
    for (float& value : values) {
        seed += 0x9e3779b97f4a7c15ULL;
        uint64_t z = seed;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
        z ^= z >> 31;
        value = static_cast<float>(static_cast<double>(z >> 11) * 0x1p-52 - 1.0) * scale;
    }
    return values;
}

} // namespace mp_test
