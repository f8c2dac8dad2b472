// SPDX-License-Identifier: Apache-2.0
// Which arrays an optimizer step can be made of: the one statement for all backends, of which each adds the formats that
// its kernels load and store. Core is stricter: it refuses what can be computed but does not train.
#pragma once

#include "device/backend.hpp"

namespace mp {

namespace detail {

template <class Formats>
bool array_is_supported(const char* what, const StepArray& a, uint32_t role,
                        Reason& reason) noexcept {
    const StateFormat format = a.format();
    if ((format_roles(format) & role) == 0) {
        reason.set("%s cannot be %s %s a scale", what, dtype_name(a.dtype),
                   a.scale_inv != nullptr ? "with" : "without");
        return false;
    }
    if (!Formats::contains(format_id(format))) {
        reason.set("%s is %s, which these kernels do not take", what, format_name(format));
        return false;
    }
    if (has_blocks(a.coding) && a.scale_inv == nullptr) {
        reason.set("%s is %s, but its blocks have no scales", what, format_name(format));
        return false;
    }
    return true;
}

template <class Formats>
bool states_are_supported(const UpdateSegment& s, Reason& reason) noexcept {
    for (int k = 0; k < numerics::kMaxStates; ++k) {
        if ((k == 0 || s.states[k].exists()) &&
            !array_is_supported<Formats>("a state", s.states[k], kForState, reason)) {
            return false;
        }
    }
    return true;
}

template <class Formats> bool master_is_supported(const UpdateSegment& s, Reason& reason) noexcept {
    if (!s.master.exists()) {
        return true;
    }
    if (s.compensation.exists()) {
        reason.set("a master weight excludes a compensation");
        return false;
    }
    if (s.has_remainder() && (s.param.format() != DType::bf16 || s.master.scale_inv != nullptr)) {
        reason.set("a remainder is beside a bf16 parameter, both without a scale");
        return false;
    }
    return array_is_supported<Formats>("a master weight", s.master, kForMaster, reason);
}

template <class Formats>
bool compensation_is_supported(const UpdateSegment& s, Reason& reason) noexcept {
    if (!s.compensation.exists()) {
        return true;
    }
    if (s.param.scale_inv != nullptr) {
        reason.set("a compensation belongs to a parameter without a scale");
        return false;
    }
    return array_is_supported<Formats>("a compensation", s.compensation, kForCompensation, reason);
}

} // namespace detail

inline bool param_rounding_is_supported(const UpdateSegment& s, Reason& reason) noexcept {
    if (s.param_half_away != 0 && (s.param.dtype != DType::bf16 || s.master.dtype != DType::fp32)) {
        reason.set("halves go away from zero in bf16 parameters beside an fp32 master weight only");
        return false;
    }
    return true;
}

inline bool gradient_is_supported(const UpdateSegment& s, Reason& reason) noexcept {
    return detail::array_is_supported<AllFormats>("a gradient", s.grad, kForGrad, reason);
}

template <class Formats> bool layout_is_supported(const UpdateSegment& s, Reason& reason) noexcept {
    return detail::array_is_supported<Formats>("a parameter", s.param, kForParam, reason) &&
           detail::array_is_supported<Formats>("a gradient", s.grad, kForGrad, reason) &&
           detail::states_are_supported<Formats>(s, reason) &&
           detail::master_is_supported<Formats>(s, reason) &&
           detail::compensation_is_supported<Formats>(s, reason) &&
           param_rounding_is_supported(s, reason);
}

// How the arrays are rounded, and what a launch with scaled states needs beside them.
inline bool rounding_is_supported(const OptimizerUpdateDesc& op, const UpdateSegment& s,
                                  Reason& reason) noexcept {
    const bool is_half_away = s.has_remainder() || s.param_half_away != 0;
    if (is_half_away && op.stochastic_param) {
        reason.set(
            "a parameter whose halves go away from zero, as beside a remainder, is rounded in "
            "this one way");
        return false;
    }
    for (int k = 0; k < numerics::kMaxStates; ++k) {
        if (op.stochastic_states[k] && s.states[k].format().is_map()) {
            reason.set("codes of a map are rounded to nearest only");
            return false;
        }
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
        const UpdateSegment& s = op.table.host_segments[i];
        if (!layout_is_supported<Formats>(s, reason) || !rounding_is_supported(op, s, reason)) {
            return false;
        }
    }
    return true;
}

} // namespace mp
