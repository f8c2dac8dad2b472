// SPDX-License-Identifier: Apache-2.0
// Which arrays an optimizer step can be made of, the same for every backend. Core is stricter: it
// refuses what can be computed but does not train.
#pragma once

#include "interface/backend.hpp"

namespace mp::kernels {

namespace detail {

inline bool is_plain_type(DType dtype) {
    return dtype == DType::fp32 || dtype == DType::fp16 || dtype == DType::bf16;
}

// One array of a segment, and the types it may have where it has a scale.
inline bool array_is_supported(const char* what, DType dtype, const float* scale_inv,
                               bool is_scaled_type, const char* scaled_types,
                               Reason& reason) noexcept {
    if (scale_inv == nullptr && !is_plain_type(dtype)) {
        reason.set("%s without a scale is fp32, fp16 or bf16, not %s", what, dtype_name(dtype));
        return false;
    }
    if (scale_inv != nullptr && !is_scaled_type) {
        reason.set("%s with a scale is %s, not %s", what, scaled_types, dtype_name(dtype));
        return false;
    }
    return true;
}

inline bool is_fp16_or_e4m3(DType dtype) {
    return dtype == DType::fp16 || dtype == DType::fp8_e4m3;
}

inline bool state_is_supported(const StepArray& a, Reason& reason) noexcept {
    if (!has_blocks(a.coding)) {
        return array_is_supported("a state", a.dtype, a.scale_inv, is_fp16_or_e4m3(a.dtype),
                                  "fp16 or fp8_e4m3", reason);
    }
    const DType expected = a.coding == Coding::block ? DType::fp8_e4m3 : DType::uint8;
    if (a.dtype != expected || a.scale_inv == nullptr) {
        reason.set("a state in blocks is %s with scales, not %s", dtype_name(expected),
                   dtype_name(a.dtype));
        return false;
    }
    return true;
}

inline bool states_are_supported(const UpdateSegment& s, Reason& reason) noexcept {
    for (int k = 0; k < numerics::kMaxStates; ++k) {
        if ((k == 0 || s.states[k].exists()) && !state_is_supported(s.states[k], reason)) {
            return false;
        }
    }
    return true;
}

inline bool master_is_supported(const UpdateSegment& s, Reason& reason) noexcept {
    if (s.master.dtype == DType::none) {
        return true;
    }
    if (s.compensation.dtype != DType::none) {
        reason.set("a master weight excludes a compensation");
        return false;
    }
    if (s.has_remainder()) {
        if (s.master.dtype != DType::int16 || s.param.dtype != DType::bf16 ||
            s.param.scale_inv != nullptr || s.master.scale_inv != nullptr) {
            reason.set("a remainder is int16 beside a bf16 parameter, without scales");
            return false;
        }
        return true;
    }
    if (s.master.dtype != (s.master.scale_inv != nullptr ? DType::fp16 : DType::fp32)) {
        reason.set("a master weight is fp32, or fp16 with a scale, not %s %s a scale",
                   dtype_name(s.master.dtype), s.master.scale_inv != nullptr ? "with" : "without");
        return false;
    }
    return true;
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
    const bool is_scaled_type = detail::is_fp16_or_e4m3(s.grad.dtype) ||
                                s.grad.dtype == DType::bf16 || s.grad.dtype == DType::fp8_e5m2;
    return detail::array_is_supported("a gradient", s.grad.dtype, s.grad.scale_inv, is_scaled_type,
                                      "fp16, bf16, fp8_e4m3 or fp8_e5m2", reason);
}

inline bool layout_is_supported(const UpdateSegment& s, Reason& reason) noexcept {
    constexpr const char* kTypes = "fp16 or fp8_e4m3";
    if (!detail::array_is_supported("a parameter", s.param.dtype, s.param.scale_inv,
                                    detail::is_fp16_or_e4m3(s.param.dtype), kTypes, reason) ||
        !gradient_is_supported(s, reason) || !detail::states_are_supported(s, reason) ||
        !detail::master_is_supported(s, reason) || !param_rounding_is_supported(s, reason)) {
        return false;
    }
    if (s.compensation.dtype == DType::none) {
        return true;
    }
    if (!detail::is_plain_type(s.compensation.dtype)) {
        reason.set("a compensation is fp32, fp16, bf16 or none, not %s",
                   dtype_name(s.compensation.dtype));
        return false;
    }
    if (s.param.scale_inv != nullptr) {
        reason.set("a compensation belongs to a parameter without a scale");
        return false;
    }
    return true;
}

// A launch with scaled states needs scratch for their maxima.
inline bool scaling_is_supported(const OptimizerUpdateDesc& op, const UpdateSegment& s,
                                 Reason& reason) noexcept {
    const bool has_scales =
        s.has_scaled_states() || s.has_block_states() || s.grad.scale_inv != nullptr;
    if (op.eager_compat && has_scales) {
        reason.set("the eager order of roundings has no scaled arrays");
        return false;
    }
    const bool is_half_away = s.has_remainder() || s.param_half_away != 0;
    if (is_half_away && (op.stochastic_param || op.eager_compat)) {
        reason.set(
            "a parameter whose halves go away from zero, as beside a remainder, is rounded in "
            "this one way");
        return false;
    }
    const auto is_dynamic = [](Coding coding) {
        return coding == Coding::dynamic8 || coding == Coding::dynamic4;
    };
    for (int k = 0; k < numerics::kMaxStates; ++k) {
        if (op.stochastic_states[k] && is_dynamic(s.states[k].coding)) {
            reason.set("codes of a dynamic map are rounded to nearest only");
            return false;
        }
    }
    if (s.has_scaled_states() && op.scaling == nullptr) {
        reason.set("scaled states need scratch memory for their maxima");
        return false;
    }
    return true;
}

} // namespace mp::kernels
