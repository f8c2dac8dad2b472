// SPDX-License-Identifier: Apache-2.0
// Delayed scaling: the scale of a tensor follows from its amaxes of earlier steps. One rule with
// switches covers Transformer Engine's recipe and MS-AMP's window.
#pragma once

#include <cstdint>

#include "dtype/host_device.hpp"
#include "numerics/scale_rules.hpp"

namespace mp::numerics {

enum class AmaxAlgo : int32_t { max = 0, most_recent = 1 };

// What an amax that is infinite or NaN does. Only `keep` lets it into the history, where an
// infinity freezes the scale until it has left again.
enum class NonFiniteAmax : int32_t {
    skip = 0,    // nothing: history and scale stay, as if the step had not been
    restart = 1, // MS-AMP: counts as 0 in the history, and the warm-up begins anew
    keep = 2,    // Transformer Engine: enters the history as it is
};

struct DelayedRule {
    int32_t history_len = 1024;
    AmaxAlgo algo = AmaxAlgo::max;
    int32_t interval = 1; // scales change at every so many updates; histories at each
    // For so many updates a tensor is scaled by its own amax instead (MS-AMP: its window).
    int32_t warm_up = 0;
    NonFiniteAmax non_finite = NonFiniteAmax::skip;
    // An amax of 0 enters the history too (MS-AMP). Otherwise (Transformer Engine) it means that
    // the tensor was not used, and changes nothing.
    bool rolls_on_zero = false;
    ScalePolicy policy;
};

// Of one tensor, in device memory. Its history is beside it: history_len floats, of which element 0
// waits for this step's amax (the state gathers it; where it gathered none, element 0 counts, which
// a loaded state may have set) and 1 ... are the earlier ones, oldest first.
struct DelayedState {
    float multiply = 1.0F;
    float amax = 0.0F;   // of all casts since the last update, as a maximum of bit patterns
    int32_t updates = 0; // that entered the history, since the last restart
    int32_t reserved = 0;
};
static_assert(sizeof(DelayedState) == 16);

namespace detail {

// A maximum of bit patterns: NaN, infinity, numbers.
MP_HD_INLINE float larger_amax(float a, float b) {
    return bits_from_float(a) > bits_from_float(b) ? a : b;
}

// `amax` becomes the latest of the history and the oldest drops out. Returns the largest, `amax`
// among them.
MP_HD inline float roll_history(float* history, int32_t length, float amax) {
    float largest = amax;
    for (int32_t i = 1; i < length; ++i) {
        largest = larger_amax(largest, history[i]);
        history[i - 1] = history[i];
    }
    history[length - 1] = amax;
    history[0] = 0.0F;
    return largest;
}

} // namespace detail

// The end of a step, for one tensor. multiply = max_code / amax by rule.policy, where amax is the
// largest of the last history_len ones, this step's included, or this step's alone; an amax of 0
// and one that is not finite leave multiply as it is.
MP_HD inline void update_delayed(DelayedState& state, float* history, const DelayedRule& rule) {
    float amax = bits_from_float(state.amax) != 0 ? state.amax : history[0];
    const bool restarts = !is_finite(amax) && rule.non_finite == NonFiniteAmax::restart;
    const bool skips = !is_finite(amax) && rule.non_finite == NonFiniteAmax::skip;
    state.amax = 0.0F;
    if (skips || (bits_from_float(amax) == 0 && !rule.rolls_on_zero)) {
        history[0] = 0.0F;
        return;
    }
    amax = restarts ? 0.0F : amax;
    const float largest = detail::roll_history(history, rule.history_len, amax);
    const float followed = rule.algo == AmaxAlgo::max ? largest : amax;
    const bool is_due = rule.interval <= 1 || state.updates % rule.interval == 0;
    if (is_due && is_finite(followed) && followed > 0.0F) {
        state.multiply =
            block_scale(rule.policy, followed, 1.0F / state.multiply, followed).multiply;
    }
    state.updates = restarts ? 0 : (state.updates < INT32_MAX ? state.updates + 1 : state.updates);
}

} // namespace mp::numerics
