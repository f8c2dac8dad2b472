// SPDX-License-Identifier: Apache-2.0
// A layer and some steps under a preset, with the numbers that are no ordinary ones: rows of zeros, no gradients, infinity.
#pragma once

#include <limits>

#include "optimizers.hpp"
#include "support.hpp"

namespace mp_test {

// A layer, half of whose rows are zero, forward and backward.
inline void run_layer(mp_context* context, const char* preset) {
    const Recipe recipe = make_recipe(context, preset);
    constexpr int64_t kIn = 64, kOut = 32, kRows = 32;
    std::vector<float> values = numbers(kIn * kOut, 1);
    std::fill(values.begin(), values.begin() + 4 * kIn, 0.0F);
    const int64_t shape[] = {kOut, kIn};
    mp_tensor* raw = nullptr;
    ASSERT_TRUE(done(mp_recipe_create_weight(context, recipe, 2, shape, values.data(), &raw)));
    const Tensor weight(raw);
    std::vector<float> input = numbers(kRows * kIn, 2);
    std::fill(input.begin(), input.begin() + kRows / 2 * kIn, 0.0F);
    const Tensor x = make_tensor(context, MP_DTYPE_FP32, {kRows, kIn}, input);
    const Tensor dx = make_tensor(context, MP_DTYPE_FP32, {kRows, kIn});
    const Tensor y = make_tensor(context, MP_DTYPE_FP32, {kRows, kOut});
    const Tensor dy = make_tensor(context, MP_DTYPE_FP32, {kRows, kOut}); // zeros
    const Tensor dw = make_tensor(context, MP_DTYPE_FP32, {kOut, kIn});
    const Tensor bias = make_tensor(context, MP_DTYPE_FP32, {kOut});
    const Tensor dbias = make_tensor(context, MP_DTYPE_FP32, {kOut});
    mp_linear_desc desc = MP_LINEAR_DESC_INIT;
    desc.in_features = kIn;
    desc.out_features = kOut;
    mp_linear* made = nullptr;
    ASSERT_TRUE(done(mp_linear_create(context, recipe, &desc, weight, bias, &made)));
    const Linear linear(made);
    for (int32_t i = 0; i < 2; ++i) {
        MP_OK(mp_linear_forward(linear, nullptr, x, y));
        const mp_status status = mp_linear_backward(linear, nullptr, dy, dx, dw, dbias, 0);
        if (status == MP_STATUS_UNSUPPORTED) { // for inference
            break;
        }
        MP_OK(status);
        ASSERT_TRUE(done(mp_linear_end_step(&made, 1, nullptr, nullptr)));
    }
}

// A first step without gradients, then one that the scaler skips.
inline void run_steps(mp_context* context, const char* preset) {
    const Recipe recipe = make_recipe(context, preset);
    mp_optimizer* raw = nullptr;
    ASSERT_TRUE(done(mp_optimizer_create(context, recipe, nullptr, &raw)));
    const Optimizer optimizer(raw);
    const mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
    ASSERT_TRUE(done(mp_optimizer_add_group(optimizer, &group, nullptr)));
    const std::vector<float> values = numbers(64 * 64, 3);
    const int64_t shape[] = {64, 64};
    mp_tensor* weight = nullptr;
    ASSERT_TRUE(done(mp_recipe_create_weight(context, recipe, 2, shape, values.data(), &weight)));
    const Tensor param(weight);
    const Tensor exact = make_tensor(context, MP_DTYPE_FP32, {64, 64}, values);
    ASSERT_TRUE(done(add_param(optimizer, 0, "weight", param, nullptr, exact)));
    const Scaler scaler = make_scaler(context);
    ASSERT_TRUE(done(mp_optimizer_step(optimizer, nullptr, scaler)));
    const Tensor grad = state_of(optimizer, 0, "grad");
    std::vector<float> infinite(values);
    infinite[7] = std::numeric_limits<float>::infinity();
    const Tensor wide = make_tensor(context, MP_DTYPE_FP32, {64, 64}, infinite);
    if (mp_tensor_cast(wide, nullptr, grad, nullptr) == MP_STATUS_INVALID_DTYPE) { // codes
        MP_OK(mp_tensor_quantize(wide, nullptr, grad, nullptr, nullptr, nullptr));
    }
    ASSERT_TRUE(done(mp_optimizer_step(optimizer, nullptr, scaler)));
    MP_OK(mp_scaler_update(scaler, nullptr));
    mp_memory_report report = MP_MEMORY_REPORT_INIT;
    MP_OK(mp_recipe_plan_memory(recipe, 0, 1000000, &report));
}

} // namespace mp_test
