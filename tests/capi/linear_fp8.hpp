// SPDX-License-Identifier: Apache-2.0
// What the tests of fp8 layers share (linear_fp8*.cpp): passes over Gaussian numbers, under a preset or a recipe.
#pragma once

#include "layers.hpp"

namespace mp_test::fp8 {

// Sums of six uniform numbers: near enough to a Gaussian for quantization.
inline std::vector<float> gaussian(std::size_t count, uint64_t seed) {
    const std::vector<float> uniform = numbers(count * 6, seed);
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t j = 0; j < 6; ++j) {
            values[i] += uniform[i * 6 + j];
        }
        values[i] *= 0.70710678F;
    }
    return values;
}

struct Sizes {
    int64_t rows = 256;
    int64_t in = 512;
    int64_t out = 384;
};

// One forward and backward pass, all results in fp32.
struct Pass {
    std::vector<float> y, dx, dw;
};

struct Fp8Linear : ::testing::Test {
    Context context = make_context();
    Sizes sizes;
    std::vector<float> x = gaussian(256 * 512, 1);
    std::vector<float> w = gaussian(384 * 512, 2);
    std::vector<float> dy = gaussian(256 * 384, 3);

    static std::size_t count(int64_t a, int64_t b) { return static_cast<std::size_t>(a * b); }

    // E4M3 codes of the weight's shape.
    Tensor msamp_codes() {
        mp_quant_desc quant = MP_QUANT_DESC_INIT;
        quant.rule = MP_SCALE_RULE_MSAMP;
        return make_quantized(context, MP_DTYPE_FP8_E4M3, {sizes.out, sizes.in}, &quant);
    }

    void use(Sizes other) {
        sizes = other;
        x = gaussian(count(sizes.rows, sizes.in), 1);
        w = gaussian(count(sizes.out, sizes.in), 2);
        dy = gaussian(count(sizes.rows, sizes.out), 3);
    }
    static Linear make(mp_context* owner, mp_recipe* recipe, mp_tensor* weight, Sizes sizes,
                       uint32_t flags = 0) {
        return make_noted_linear(owner, recipe, linear_desc(sizes.in, sizes.out, flags), weight);
    }
    Pass run(mp_context* owner, mp_linear* linear) const {
        const Tensor input = make_tensor(owner, MP_DTYPE_FP32, {sizes.rows, sizes.in}, x);
        const Tensor y = make_tensor(owner, MP_DTYPE_FP32, {sizes.rows, sizes.out});
        const Tensor gradient = make_tensor(owner, MP_DTYPE_FP32, {sizes.rows, sizes.out}, dy);
        const Tensor dx = make_tensor(owner, MP_DTYPE_FP32, {sizes.rows, sizes.in});
        const Tensor dw = make_tensor(owner, MP_DTYPE_FP32, {sizes.out, sizes.in});
        EXPECT_TRUE(succeeded(mp_linear_forward(linear, nullptr, input, y)));
        EXPECT_TRUE(done(mp_linear_backward(linear, nullptr, gradient, dx, dw, nullptr, 0)));
        return {values_of(owner, y), values_of(owner, dx), values_of(owner, dw)};
    }
    Pass run_recipe(mp_context* owner, mp_recipe* recipe) const {
        const Tensor weight = make_tensor(owner, MP_DTYPE_FP32, {sizes.out, sizes.in}, w);
        return run(owner, make(owner, recipe, weight, sizes));
    }
    Pass run_recipe(mp_recipe* recipe) { return run_recipe(context, recipe); }
    Pass run_preset(const char* name) { return run_recipe(make_recipe(context, name)); }
};

// Which of two results differ, or "".
inline std::string difference(const Pass& a, const Pass& b) {
    const auto same = [](const std::vector<float>& p, const std::vector<float>& q) {
        return p.size() == q.size() &&
               std::memcmp(p.data(), q.data(), p.size() * sizeof(float)) == 0;
    };
    return std::string(same(a.y, b.y) ? "" : "y ") + (same(a.dx, b.dx) ? "" : "dx ") +
           (same(a.dw, b.dw) ? "" : "dw");
}

inline constexpr const char* kFp8Recipes[] = {
    "fp8_delayed",       "fp8_current", "fp8_rowwise",         "fp8_block",
    "fp8_rowwise_gw_hp", "mxfp8",       "bf16_with_fp8_mixed", "fp16_with_fp8_mixed"};

} // namespace mp_test::fp8
