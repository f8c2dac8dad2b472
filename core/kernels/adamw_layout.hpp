// SPDX-License-Identifier: Apache-2.0
// Which arrays the AdamW step can be made of, the same for every backend. Core is stricter: it
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

inline bool moment_is_supported(const char* what, DType dtype, Coding coding,
                                const float* scale_inv, Reason& reason) noexcept {
    if (!has_blocks(coding)) {
        return array_is_supported(what, dtype, scale_inv,
                                  dtype == DType::fp16 || dtype == DType::fp8_e4m3,
                                  "fp16 or fp8_e4m3", reason);
    }
    const DType expected = coding == Coding::block ? DType::fp8_e4m3 : DType::uint8;
    if (dtype != expected || scale_inv == nullptr) {
        reason.set("%s in blocks is %s with scales, not %s", what, dtype_name(expected),
                   dtype_name(dtype));
        return false;
    }
    return true;
}

inline bool is_fp16_or_e4m3(DType dtype) {
    return dtype == DType::fp16 || dtype == DType::fp8_e4m3;
}

inline bool master_is_supported(const AdamwSegment& s, Reason& reason) noexcept {
    if (s.master_dtype == DType::none) {
        return true;
    }
    if (s.compensation_dtype != DType::none) {
        reason.set("a master weight excludes a compensation");
        return false;
    }
    if (s.has_remainder()) {
        if (s.master_dtype != DType::int16 || s.param_dtype != DType::bf16 ||
            s.param_scale_inv != nullptr || s.master_scale_inv != nullptr) {
            reason.set("a remainder is int16 beside a bf16 parameter, without scales");
            return false;
        }
        return true;
    }
    if (s.master_dtype != (s.master_scale_inv != nullptr ? DType::fp16 : DType::fp32)) {
        reason.set("a master weight is fp32, or fp16 with a scale, not %s %s a scale",
                   dtype_name(s.master_dtype), s.master_scale_inv != nullptr ? "with" : "without");
        return false;
    }
    return true;
}

} // namespace detail

inline bool param_rounding_is_supported(const AdamwSegment& s, Reason& reason) noexcept {
    if (s.param_half_away != 0 && (s.param_dtype != DType::bf16 || s.master_dtype != DType::fp32)) {
        reason.set("halves go away from zero in bf16 parameters beside an fp32 master weight only");
        return false;
    }
    return true;
}

inline bool gradient_is_supported(const AdamwSegment& s, Reason& reason) noexcept {
    const bool is_scaled_type = detail::is_fp16_or_e4m3(s.grad_dtype) ||
                                s.grad_dtype == DType::bf16 || s.grad_dtype == DType::fp8_e5m2;
    return detail::array_is_supported("a gradient", s.grad_dtype, s.grad_scale_inv, is_scaled_type,
                                      "fp16, bf16, fp8_e4m3 or fp8_e5m2", reason);
}

inline bool layout_is_supported(const AdamwSegment& s, Reason& reason) noexcept {
    constexpr const char* kTypes = "fp16 or fp8_e4m3";
    if (!detail::array_is_supported("a parameter", s.param_dtype, s.param_scale_inv,
                                    detail::is_fp16_or_e4m3(s.param_dtype), kTypes, reason) ||
        !gradient_is_supported(s, reason) ||
        !detail::moment_is_supported("exp_avg", s.exp_avg_dtype, s.exp_avg_coding,
                                     s.exp_avg_scale_inv, reason) ||
        !detail::moment_is_supported("exp_avg_sq", s.exp_avg_sq_dtype, s.exp_avg_sq_coding,
                                     s.exp_avg_sq_scale_inv, reason) ||
        !detail::master_is_supported(s, reason) || !param_rounding_is_supported(s, reason)) {
        return false;
    }
    if (s.compensation_dtype == DType::none) {
        return true;
    }
    if (!detail::is_plain_type(s.compensation_dtype)) {
        reason.set("a compensation is fp32, fp16, bf16 or none, not %s",
                   dtype_name(s.compensation_dtype));
        return false;
    }
    if (s.param_scale_inv != nullptr) {
        reason.set("a compensation belongs to a parameter without a scale");
        return false;
    }
    return true;
}

// A launch with scaled states needs scratch for their maxima.
inline bool scaling_is_supported(const AdamwDesc& op, const AdamwSegment& s,
                                 Reason& reason) noexcept {
    const bool has_scales =
        s.has_scaled_states() || s.has_block_states() || s.grad_scale_inv != nullptr;
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
    if ((op.stochastic_exp_avg && is_dynamic(s.exp_avg_coding)) ||
        (op.stochastic_exp_avg_sq && is_dynamic(s.exp_avg_sq_coding))) {
        reason.set("codes of a dynamic map are rounded to nearest only");
        return false;
    }
    if (s.has_scaled_states() && op.scaling == nullptr) {
        reason.set("scaled states need scratch memory for their maxima");
        return false;
    }
    return true;
}

} // namespace mp::kernels
