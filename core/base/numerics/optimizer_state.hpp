// SPDX-License-Identifier: Apache-2.0
// The part of an optimizer that lives in device memory, and the one decision of a step: skip or take it, and
// with which scalars. Runs on the device so that no step has to wait for the host.
#pragma once

#include <cmath>
#include <cstdint>

#include "dtype/host_device.hpp"
#include "numerics/loss_scale.hpp"
#include "numerics/rules.hpp"
#include "numerics/step_guard.hpp"

namespace mp::numerics {

struct OptimizerState {
    int64_t step = 0; // steps taken; each group has its own t beside it
    int64_t skipped_steps = 0;
    double sum_squares = 0.0; // of the gradients as they came, before unscaling
    double grad_norm = 0.0;   // unscaled
    double grad_mul = 1.0;
    double z[kWatchedCount] = {}; // of this step's gradient norm and loss; 0 where not watched
    int64_t outlier_steps = 0;    // of the skipped ones, by the guard
    uint32_t skip = 0;            // 1: this step changes nothing
    // grad_norm, and whether a gradient was not finite, for kernels of the caller's.
    float norm = 0.0F;
    float found_inf = 0.0F;
    uint32_t reserved = 0;
};
static_assert(sizeof(OptimizerState) == 80);

struct StepRule {
    double max_grad_norm = 0.0;               // 0: no clipping
    double grad_scale = 1.0;                  // divided out beside the loss scale
    const float* device_grad_scale = nullptr; // divided out as well; in the device's memory
    uint32_t has_stats = 0;                   // state.sum_squares was computed for this step
    const float* device_grad_mul = nullptr;   // multiplies gradients: a clip factor
    const int64_t* device_step = nullptr;     // steps taken so far, instead of the state's
    GuardState* guard = nullptr;              // null: no guard
    GuardRule guard_rule;
    uint32_t is_check = 0; // 1: no step, the caller looks at gradients for all steps
};

namespace detail {

MP_HD inline bool is_finite_double(double x) { return x - x == 0.0; }
MP_HD inline bool fits_float(double x) { return fabs(x) <= 0x1.fffffep127; }

// Whether the step stands out. All values join their windows, also those of a step that is skipped for another reason, but for
// those that are not finite.
MP_HD inline bool stands_out(OptimizerState& state, const StepRule& rule) {
    bool out = false;
    for (int i = 0; i < kWatchedCount; ++i) {
        const double value = i == 0 ? state.grad_norm : rule.guard_rule.loss;
        const double most = rule.guard_rule.max_z[i];
        if (most > 0.0 && is_finite_double(value)) {
            state.z[i] = watch(rule.guard->windows[i], rule.guard_rule.window, value);
            out = out || state.z[i] > most;
        }
    }
    return out;
}

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
    bool bad = scaler != nullptr && is_found_by_caller(*scaler);
    state.grad_norm = 0.0;
    double clip = 1.0;
    if (rule.has_stats != 0) {
        bad = bad || !detail::is_finite_double(state.sum_squares);
        state.grad_norm = sqrt(state.sum_squares) * unscale;
        if (rule.max_grad_norm > 0.0) {
            const double coefficient = rule.max_grad_norm / (state.grad_norm + 1e-6);
            clip = coefficient < 1.0 ? coefficient : 1.0;
        }
    }
    state.grad_mul = unscale * clip;
    // What lies in the device's memory cannot be refused beforehand: no step has such a count or such a factor.
    const bool unusable = state.step < 0 || !detail::fits_float(state.grad_mul);
    for (double& z : state.z) {
        z = 0.0;
    }
    const bool stands_out = rule.guard != nullptr && detail::stands_out(state, rule);
    const bool outlier = stands_out && !bad && !unusable;
    const bool skip = bad || outlier || unusable;
    state.skip = skip ? 1 : 0;
    state.norm = static_cast<float>(state.grad_norm);
    state.found_inf = bad ? 1.0F : 0.0F;
    state.step += skip ? 0 : 1;
    state.skipped_steps += skip ? 1 : 0;
    state.outlier_steps += outlier ? 1 : 0;
    if (bad && scaler != nullptr) {
        find_inf(*scaler, rule.is_check == 0);
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
