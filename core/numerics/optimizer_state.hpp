// SPDX-License-Identifier: Apache-2.0
// The part of an optimizer that lives in device memory, and the one decision of a step: skip or take it, and
// with which scalars. Runs on the device so that no step has to wait for the host.
#pragma once

#include <cmath>
#include <cstdint>

#include "dtype/host_device.hpp"
#include "numerics/loss_scale.hpp"
#include "numerics/rules.hpp"

namespace mp::numerics {

struct OptimizerState {
    int64_t step = 0; // steps taken; each group has its own t beside it
    int64_t skipped_steps = 0;
    double sum_squares = 0.0; // of the gradients as they came, before unscaling
    double grad_norm = 0.0;   // unscaled
    double grad_mul = 1.0;
    uint32_t skip = 0; // 1: this step changes nothing
    // The same two for kernels of the caller's.
    float norm = 0.0F;
    float found_inf = 0.0F;
    uint32_t reserved = 0;
};
static_assert(sizeof(OptimizerState) == 56);

struct StepRule {
    double max_grad_norm = 0.0;               // 0: no clipping
    double grad_scale = 1.0;                  // divided out beside the loss scale
    const float* device_grad_scale = nullptr; // divided out as well; in the device's memory
    uint32_t has_stats = 0;                   // state.sum_squares was computed for this step
    const float* device_grad_mul = nullptr;   // multiplies gradients: a clip factor
    const int64_t* device_step = nullptr;     // steps taken so far, instead of the state's
};

namespace detail {

MP_HD inline bool is_finite_double(double x) { return x - x == 0.0; }

} // namespace detail

// `scaler` may be null. A sum of squares in double of finite fp32 gradients is finite, so it alone tells
// whether every gradient was.
MP_HD inline void prepare_step(OptimizerState& state, LossScaleState* scaler,
                               const StepRule& rule) {
    const double scale = scaler != nullptr ? static_cast<double>(scaler->scale) : 1.0;
    const double device_scale =
        rule.device_grad_scale != nullptr ? static_cast<double>(*rule.device_grad_scale) : 1.0;
    const double factor =
        rule.device_grad_mul != nullptr ? static_cast<double>(*rule.device_grad_mul) : 1.0;
    const double unscale = 1.0 / (scale * rule.grad_scale * device_scale) * factor;
    if (rule.device_step != nullptr) {
        state.step = *rule.device_step;
    }
    bool skip = scaler != nullptr && scaler->found_inf != 0.0F;
    state.grad_norm = 0.0;
    double clip = 1.0;
    if (rule.has_stats != 0) {
        skip = skip || !detail::is_finite_double(state.sum_squares);
        state.grad_norm = sqrt(state.sum_squares) * unscale;
        if (rule.max_grad_norm > 0.0) {
            const double coefficient = rule.max_grad_norm / (state.grad_norm + 1e-6);
            clip = coefficient < 1.0 ? coefficient : 1.0;
        }
    }
    state.grad_mul = unscale * clip;
    state.skip = skip ? 1 : 0;
    state.norm = static_cast<float>(state.grad_norm);
    state.found_inf = skip ? 1.0F : 0.0F;
    state.step += skip ? 0 : 1;
    state.skipped_steps += skip ? 1 : 0;
    if (skip && scaler != nullptr) {
        scaler->found_inf = 1.0F;
    }
}

// After prepare_step, for each group: its own count of steps and what its kernel reads.
MP_HD inline void prepare_group(const OptimizerState& state, const GroupHyper& hyper, int64_t& step,
                                GroupScalars& scalars) {
    if (state.skip != 0 || !hyper.enabled) {
        return;
    }
    ++step;
    scalars = group_scalars(hyper, step, state.grad_mul);
}

} // namespace mp::numerics
