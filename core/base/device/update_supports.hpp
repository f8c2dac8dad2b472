// SPDX-License-Identifier: Apache-2.0
// Which arrays an optimizer step can be made of, for all backends: each adds the formats that its kernels load and store.
// What goes together: step_conditions.hpp.
#pragma once

#include "device/backend.hpp"
#include "device/step_conditions.hpp"

namespace mp {

namespace detail {

template <class Formats>
bool array_is_supported(const char* what, const StepArray& a, uint32_t role,
                        Reason& reason) noexcept {
    const FormatId format = a.format();
    if ((format_roles(format) & role) == 0) {
        reason.set("%s cannot be %s %s a scale", what, dtype_name(a.dtype),
                   a.scale_inv != nullptr ? "with" : "without");
        return false;
    }
    if (!Formats::contains(format)) {
        reason.set("%s is %s, which these kernels do not take", what, format_name(format));
        return false;
    }
    if (a.coding == Coding::remainder && a.scale_inv != nullptr) {
        reason.set("%s is a remainder with a scale; it has none", what);
        return false;
    }
    if (has_blocks(a.coding) && a.scale_inv == nullptr) {
        reason.set("%s is %s, but its blocks have no scales", what, format_name(format));
        return false;
    }
    return true;
}

inline bool conditions_hold(const StepLayout& layout, Reason& reason) noexcept {
    bool hold = all_of(kLayoutConditions, [&](const auto& condition) {
        return condition.holds(layout) || (reason.set("%s", condition.reason), false);
    });
    for (int k = 0; hold && k < numerics::kMaxStates; ++k) {
        hold = all_of(kStateConditions, [&](const auto& condition) {
            return condition.is_computed ||
                   condition.holds(layout.states[k], true, layout.stochastic_states[k]) ||
                   (reason.set("a state %s", condition.reason), false);
        });
    }
    return hold;
}

} // namespace detail

inline StepLayout layout_of(const UpdateSegment& s) noexcept {
    StepLayout layout;
    layout.param = s.param.format();
    layout.master = s.master.format();
    layout.compensation = s.compensation.format();
    for (int k = 0; k < numerics::kMaxStates; ++k) {
        layout.states[k] = s.states[k].format();
    }
    layout.half_away = s.param_half_away != 0;
    return layout;
}
inline StepLayout layout_of(const OptimizerUpdateDesc& op, const UpdateSegment& s) noexcept {
    StepLayout layout = layout_of(s);
    layout.stochastic_param = op.stochastic_param;
    for (int k = 0; k < numerics::kMaxStates; ++k) {
        layout.stochastic_states[k] = op.stochastic_states[k];
    }
    return layout;
}

// Without what a layout's conditions are about, but for its rounding.
inline bool is_alone(const UpdateSegment& s) noexcept {
    return !s.master.exists() && !s.compensation.exists() && s.param_half_away == 0;
}

inline bool gradient_is_supported(const UpdateSegment& s, Reason& reason) noexcept {
    return detail::array_is_supported<AllFormats>("a gradient", s.grad, kForGrad, reason);
}

template <class Formats>
bool segment_is_supported(const OptimizerUpdateDesc& op, const UpdateSegment& s,
                          Reason& reason) noexcept {
    const auto takes = [&](const char* what, const StepArray& a, uint32_t role) {
        return detail::array_is_supported<Formats>(what, a, role, reason);
    };
    if (!takes("a parameter", s.param, kForParam) || !takes("a gradient", s.grad, kForGrad) ||
        (s.master.exists() && !takes("a master weight", s.master, kForMaster)) ||
        (s.compensation.exists() && !takes("a compensation", s.compensation, kForCompensation))) {
        return false;
    }
    bool is_stochastic = op.stochastic_param;
    for (int k = 0; k < numerics::kMaxStates; ++k) {
        is_stochastic = is_stochastic || op.stochastic_states[k];
        if ((k == 0 || s.states[k].exists()) && !takes("a state", s.states[k], kForState)) {
            return false;
        }
    }
    if ((is_stochastic || !is_alone(s)) && !detail::conditions_hold(layout_of(op, s), reason)) {
        return false;
    }
    if (s.has_scaled_states() && op.scaling == nullptr) {
        reason.set("scaled states need scratch memory for their maxima");
        return false;
    }
    return true;
}

// What a backend whose kernels load and store these formats says of an update.
template <class Formats>
bool update_is_supported(const OptimizerUpdateDesc& op, Reason& reason) noexcept {
    for (int64_t i = 0; i < op.table.segment_count; ++i) {
        if (!segment_is_supported<Formats>(op, op.table.host_segments[i], reason)) {
            return false;
        }
    }
    return true;
}

} // namespace mp
