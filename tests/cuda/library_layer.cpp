// SPDX-License-Identifier: Apache-2.0
// A layer on a CUDA device through its C ABI, beside the same calls on the host, and what its forwards keep.
#include "../capi/layers.hpp"
#include "library.hpp"

using namespace mp_test;

namespace {

constexpr int64_t kRows = 37;
constexpr int64_t kIn = 24;
constexpr int64_t kOut = 40;

struct Pass {
    std::vector<float> y, dx, dw, dbias;
};

Pass run_layer(mp_context* context, const char* recipe_name) {
    const Recipe recipe = make_recipe(context, recipe_name);
    const int32_t dtype = dtype_of(recipe, MP_RECIPE_WEIGHT_DTYPE);
    const Tensor weight = make_tensor(context, dtype, {kOut, kIn}, numbers(kOut * kIn, 2));
    const Tensor bias = make_tensor(context, dtype, {kOut}, numbers(kOut, 3));
    const Tensor x = make_tensor(context, MP_DTYPE_FP32, {kRows, kIn}, numbers(kRows * kIn, 1));
    const Tensor dy = make_tensor(context, MP_DTYPE_FP32, {kRows, kOut}, numbers(kRows * kOut, 4));
    const Tensor y = make_tensor(context, MP_DTYPE_FP32, {kRows, kOut});
    const Tensor dx = make_tensor(context, MP_DTYPE_FP32, {kRows, kIn});
    const Tensor dw = make_tensor(context, MP_DTYPE_FP32, {kOut, kIn});
    const Tensor dbias = make_tensor(context, MP_DTYPE_FP32, {kOut});
    const Linear linear = make_linear(context, recipe, linear_desc(kIn, kOut), weight, bias);
    EXPECT_TRUE(succeeded(mp_linear_forward(linear, nullptr, x, y)));
    for (int32_t i = 0; i < 2; ++i) { // the second time it accumulates
        const uint32_t flags = i == 0 ? 0 : MP_BACKWARD_ACCUMULATE;
        EXPECT_TRUE(succeeded(mp_linear_backward(linear, nullptr, dy, dx, dw, dbias, flags)));
    }
    return {values_of(context, y), values_of(context, dx), values_of(context, dw),
            values_of(context, dbias)};
}

// Sums of at most `terms` products below 1, rounded in any order on either side.
void expect_near(const std::vector<float>& expected, const std::vector<float>& got, int64_t terms) {
    ASSERT_EQ(expected.size(), got.size());
    const double bound = 4.0 * static_cast<double>(terms * terms) * 0x1p-24;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(static_cast<double>(expected[i]), static_cast<double>(got[i]), bound) << i;
    }
}

TEST_F(OnCuda, ALayerAgreesWithTheHost) {
    const Context host = open_context(MP_DEVICE_HOST);
    const Context cuda = open_context(MP_DEVICE_CUDA);
    for (const char* recipe : kRecipes) {
        SCOPED_TRACE(recipe);
        const Pass expected = run_layer(host, recipe);
        const Pass got = run_layer(cuda, recipe);
        expect_near(expected.y, got.y, kIn + 1);
        expect_near(expected.dx, got.dx, kOut);
        expect_near(expected.dw, got.dw, 2 * kRows);
        EXPECT_EQ(expected.dbias, got.dbias); // their order is written down
    }
}

// Two forwards wait; the second is dropped and computed again.
TEST_F(OnCuda, WhatForwardsKeepHasTheBitsOfTheSimpleCalls) {
    const Context cuda = open_context(MP_DEVICE_CUDA);
    constexpr int64_t kSize = 32;
    const std::vector<int64_t> shape = {kSize, kSize};
    for (const char* name : {"fp32", "bf16_mixed", "fp8_delayed", "fp8_current"}) {
        SCOPED_TRACE(name);
        const Recipe recipe = make_recipe(cuda, name);
        const Tensor w = make_tensor(cuda, MP_DTYPE_FP32, shape, numbers(kSize * kSize, 1));
        const Tensor x[2] = {make_tensor(cuda, MP_DTYPE_FP32, shape, numbers(kSize * kSize, 2)),
                             make_tensor(cuda, MP_DTYPE_FP32, shape, numbers(kSize * kSize, 3))};
        const Tensor dy = make_tensor(cuda, MP_DTYPE_FP32, shape, numbers(kSize * kSize, 4));
        const Tensor y = make_tensor(cuda, MP_DTYPE_FP32, shape);
        std::vector<std::vector<unsigned char>> results[2];
        for (const bool waits : {false, true}) {
            const Linear linear = make_linear(cuda, recipe, linear_desc(kSize, kSize), w);
            const Tensor dx = make_tensor(cuda, MP_DTYPE_FP32, shape);
            const Tensor dw = make_tensor(cuda, MP_DTYPE_FP32, shape);
            const Saved saved[2] = {make_saved(linear), make_saved(linear)};
            if (waits) {
                MP_OK(mp_linear_forward_saved(linear, nullptr, x[0], y, saved[0], 0));
                MP_OK(mp_linear_forward_saved(linear, nullptr, x[1], y, saved[1], MP_FORWARD_DROP));
            }
            for (int i = 0; i < 2; ++i) {
                const uint32_t flags = i == 0 ? 0 : MP_BACKWARD_ACCUMULATE;
                if (!waits) {
                    MP_OK(mp_linear_forward(linear, nullptr, x[i], y));
                    MP_OK(mp_linear_backward(linear, nullptr, dy, dx, dw, nullptr, flags));
                } else {
                    if (i == 1) {
                        MP_OK(mp_linear_forward_saved(linear, nullptr, x[1], nullptr, saved[1],
                                                      MP_FORWARD_RECOMPUTE));
                    }
                    MP_OK(mp_linear_backward_saved(linear, nullptr, saved[i], dy, dx, dw, nullptr,
                                                   flags));
                }
            }
            results[waits ? 1 : 0] = {bytes_of(dx), bytes_of(dw)};
        }
        EXPECT_EQ(results[0], results[1]);
    }
}

} // namespace
