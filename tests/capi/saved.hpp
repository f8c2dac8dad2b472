// SPDX-License-Identifier: Apache-2.0
// What the tests of kept inputs share (saved*.cpp): a square layer under any recipe, and a pass by the simple calls.
#pragma once

#include <string_view>

#include "layers.hpp"

namespace mp_test::saved {

inline constexpr int64_t kRows = 64;
inline constexpr int64_t kSize = 96; // of every layer, in and out
// Passes of the same numbers differ in their random bits, and those follow the order of forwards.
inline constexpr const char* kStochastic = R"({"recipe": "fp8_rowwise",
    "gemm.input.rounding": "stochastic", "gemm.weight.rounding": "stochastic",
    "gemm.grad_output.rounding": "stochastic"})";
inline constexpr const char* kRecipes[] = {
    "fp32",        "fp16_mixed", "bf16_mixed", "fp8_delayed",       "fp8_current",
    "fp8_rowwise", "fp8_block",  "mxfp8",      "fp8_rowwise_gw_hp", kStochastic};

// A string's address says nothing: each unit may have its own copy.
inline bool is_stochastic(std::string_view recipe) { return recipe == kStochastic; }

using Bytes = std::vector<unsigned char>;

// Layers of one seed have one name, and so the same random bits.
inline std::string layer_name(uint64_t seed) { return "layer" + std::to_string(seed); }
inline Linear make(mp_context* context, mp_recipe* recipe, uint64_t seed, uint32_t flags,
                   mp_tensor* weight) {
    const std::string name = layer_name(seed);
    mp_linear_desc desc = linear_desc(kSize, kSize, flags);
    desc.name = name.c_str();
    return make_linear(context, recipe, desc, weight);
}

// A layer with its weight and main gradient.
struct Layer {
    Recipe recipe;
    Tensor w;
    Tensor dw;
    Linear linear;

    Layer(mp_context* context, const char* name, uint64_t seed, uint32_t flags = 0)
        : recipe(recipe_of(context, name)),
          w(make_tensor(context, MP_DTYPE_FP32, {kSize, kSize}, numbers(kSize * kSize, seed))),
          dw(make_tensor(context, MP_DTYPE_FP32, {kSize, kSize})),
          linear(make(context, recipe, seed, flags, w)) {}

    void end_step() const {
        mp_linear* const one = linear;
        EXPECT_TRUE(succeeded(mp_linear_end_step(&one, 1, nullptr, nullptr)));
    }
};

struct SavedTest : ::testing::Test {
    Context context = make_context();

    Tensor activation(uint64_t seed, float scale = 1.0F) const {
        return make_tensor(context, MP_DTYPE_FP32, {kRows, kSize},
                           numbers(kRows * kSize, seed, scale));
    }
    Tensor empty() const { return make_tensor(context, MP_DTYPE_FP32, {kRows, kSize}); }
    Tensor empty_weight(int32_t dtype = MP_DTYPE_FP32) const {
        return make_tensor(context, dtype, {kSize, kSize});
    }
    // Forward and backward by the simple calls.
    struct Pass {
        Bytes y, dx, dw;
        bool operator==(const Pass&) const = default;
    };
    Pass simple(mp_linear* linear, mp_tensor* x, mp_tensor* dy) const {
        const Tensor y = empty(), dx = empty(), dw = empty_weight();
        EXPECT_TRUE(succeeded(mp_linear_forward(linear, nullptr, x, y)));
        EXPECT_TRUE(done(mp_linear_backward(linear, nullptr, dy, dx, dw, nullptr, 0)));
        return {bytes_of(y), bytes_of(dx), bytes_of(dw)};
    }
};

} // namespace mp_test::saved
