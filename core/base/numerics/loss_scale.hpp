// SPDX-License-Identifier: Apache-2.0
// The dynamic loss scale: its state, as it lies in device memory, and the rule that moves it.
// One rule with switches covers torch.amp.GradScaler, Megatron-LM, DeepSpeed and apex.amp.
#pragma once

#include <cmath>
#include <cstdint>

#include "dtype/host_device.hpp"
#include "numerics/bits.hpp"

namespace mp::numerics {

struct LossScaleRule {
    double growth_factor = 2.0;
    double backoff_factor = 0.5;
    double min_scale = 0.0; // 0: none
    double max_scale = 0.0; // 0: only kept finite
    int32_t growth_interval = 2000;
    int32_t hysteresis = 1;
    int32_t count_offset = 0;
    uint32_t is_dynamic = 1;
    uint32_t refill_on_good_step = 0;
    uint32_t error_at_min = 0;
};

struct LossScaleState {
    float scale = 1.0F;
    float found_inf = 0.0F; // 0, or 1 (anything else): as others have it, who may write it too
    int32_t growth_tracker = 0;
    int32_t hysteresis_tracker = 1;
    uint32_t failed_at_min = 0;
    uint32_t by_steps = 0; // 1: only steps have set found_inf, each of its own gradients
    int64_t good_steps = 0;
    int64_t overflow_steps = 0;
};
static_assert(sizeof(LossScaleState) == 40);

namespace detail {

MP_HD inline void back_off(LossScaleState& state, const LossScaleRule& rule) {
    // Only a scale that is used up counts as "at the minimum": DeepSpeed raises here.
    if (rule.error_at_min != 0 && static_cast<double>(state.scale) <= rule.min_scale) {
        state.failed_at_min = 1;
    }
    double scale = static_cast<double>(state.scale) * rule.backoff_factor;
    // Below the smallest normal number the reciprocal would overflow.
    constexpr double kSmallest = 1.1754943508222875e-38;
    scale = scale < kSmallest ? kSmallest : scale;
    scale = scale < rule.min_scale ? rule.min_scale : scale;
    state.scale = static_cast<float>(scale);
}

MP_HD inline void grow(LossScaleState& state, const LossScaleRule& rule) {
    double scale = static_cast<double>(state.scale) * rule.growth_factor;
    if (rule.max_scale > 0.0 && scale > rule.max_scale) {
        scale = rule.max_scale;
    }
    const auto grown = static_cast<float>(scale);
    if (is_finite(grown)) { // otherwise stay: the scale is never infinite
        state.scale = grown;
    }
}

} // namespace detail

// Gradients were not finite: those of a step, which another optimizer's step with this scaler does not heed, or those that the
// caller looked at, for all.
MP_HD inline void find_inf(LossScaleState& state, bool by_step) {
    state.by_steps = by_step && (state.found_inf == 0.0F || state.by_steps != 0) ? 1 : 0;
    state.found_inf = 1.0F;
}

// Whether somebody else than a step has found them.
MP_HD inline bool is_found_by_caller(const LossScaleState& state) {
    return state.found_inf != 0.0F && state.by_steps == 0;
}

// One step's end: moves the scale by whether its gradients were finite, and forgets that they were not.
MP_HD inline void update_loss_scale(LossScaleState& state, const LossScaleRule& rule) {
    const bool overflow = state.found_inf != 0.0F;
    state.found_inf = 0.0F;
    state.by_steps = 0;
    state.good_steps += overflow ? 0 : 1;
    state.overflow_steps += overflow ? 1 : 0;
    if (rule.is_dynamic == 0) {
        return;
    }
    if (overflow) {
        state.growth_tracker = 0;
        // Used up, it stays at 1 in DeepSpeed and runs below 0 in Megatron: both back off at every overflow.
        if (state.hysteresis_tracker > 1) {
            --state.hysteresis_tracker;
        } else {
            detail::back_off(state, rule);
        }
        return;
    }
    if (rule.refill_on_good_step != 0) {
        state.hysteresis_tracker = rule.hysteresis;
    }
    ++state.growth_tracker;
    if (state.growth_tracker >= rule.growth_interval + rule.count_offset) {
        state.growth_tracker = rule.count_offset;
        state.hysteresis_tracker = rule.hysteresis;
        detail::grow(state, rule);
    }
}

} // namespace mp::numerics
