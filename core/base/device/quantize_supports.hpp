// SPDX-License-Identifier: Apache-2.0
// Which quantize and dequantize operations have a meaning, the same for every backend.
#pragma once

#include "device/backend.hpp"

namespace mp {

namespace detail {

constexpr bool is_code_type(DType dtype) {
    return is_fp8(dtype) || dtype == DType::fp16 || dtype == DType::fp4_e2m1;
}

inline bool is_matrix(int64_t rows, int64_t columns, int64_t count, Reason& reason) noexcept {
    if (rows < 0 || columns < 0 || rows * columns != count) {
        reason.set("%lld x %lld is no shape of %lld elements", static_cast<long long>(rows),
                   static_cast<long long>(columns), static_cast<long long>(count));
        return false;
    }
    return true;
}

inline bool has_known_scales(const ScaleGrid& grid, Reason& reason) noexcept {
    if (grid.dtype != DType::fp32 && grid.dtype != DType::e8m0 && grid.dtype != DType::fp8_e4m3) {
        reason.set("scales are fp32, e8m0 or fp8_e4m3, not %s", dtype_name(grid.dtype));
        return false;
    }
    if (grid.block_rows < 0 || grid.block_columns < 0) {
        reason.set("blocks of %d x %d", grid.block_rows, grid.block_columns);
        return false;
    }
    return true;
}

// The scales of a rule must be exact in the grid's type.
inline bool rule_fits_grid(const QuantizeDesc& op, Reason& reason) noexcept {
    using numerics::ScaleRule;
    const bool is_nvfp4 = op.policy.rule == ScaleRule::nvfp4;
    const bool is_mx = numerics::is_mx(op.policy.rule);
    const bool gives_powers = op.policy.power_of_two || op.policy.rule == ScaleRule::msamp;
    const bool fits = op.grid.dtype == DType::fp8_e4m3 ? is_nvfp4
                      : op.grid.dtype == DType::e8m0   ? is_mx || (gives_powers && !is_nvfp4)
                                                       : !is_mx && !is_nvfp4;
    if (!fits) {
        reason.set("scale rule %d does not give scales of %s", static_cast<int>(op.policy.rule),
                   dtype_name(op.grid.dtype));
        return false;
    }
    if (is_nvfp4 && (op.dtype != DType::fp4_e2m1 || op.amax == nullptr)) {
        reason.set("nvfp4 has codes of fp4_e2m1 and an amax of the tensor");
        return false;
    }
    return true;
}

inline bool slot_fits_grid(const QuantizeDesc& op, Reason& reason) noexcept {
    if (op.slot != nullptr && op.grid != kTensorScale) {
        reason.set("delayed scaling has one fp32 scale for the tensor");
        return false;
    }
    if (op.given_amax != nullptr &&
        (op.grid.block_rows != 0 || op.grid.block_columns != 0 || op.slot != nullptr)) {
        reason.set("a given amax is for one scale for the tensor, without delayed scaling");
        return false;
    }
    return true;
}

} // namespace detail

inline bool is_quantize(const QuantizeDesc& op, Reason& reason) noexcept {
    if (!is_high_precision(op.source.dtype) || !detail::is_code_type(op.dtype)) {
        reason.set("fp32, fp16 or bf16 to fp8_e4m3, fp8_e5m2, fp16 or fp4_e2m1, not %s to %s",
                   dtype_name(op.source.dtype), dtype_name(op.dtype));
        return false;
    }
    if (op.dtype == DType::fp4_e2m1 && op.codes_transposed != nullptr) {
        reason.set("codes of half a byte are not transposed: their blocks would be others");
        return false;
    }
    if (op.codes == nullptr && op.codes_transposed == nullptr && op.source.count > 0) {
        reason.set("neither codes nor transposed codes are asked for");
        return false;
    }
    return detail::is_matrix(op.rows, op.columns, op.source.count, reason) &&
           detail::has_known_scales(op.grid, reason) && detail::rule_fits_grid(op, reason) &&
           detail::slot_fits_grid(op, reason);
}

inline bool is_dequantize(const DequantizeDesc& op, Reason& reason) noexcept {
    const ScaledRef& from = op.source;
    if (!detail::is_code_type(from.codes.dtype) || !is_high_precision(op.destination.dtype)) {
        reason.set("fp8_e4m3, fp8_e5m2, fp16 or fp4_e2m1 to fp32, fp16 or bf16, not %s to %s",
                   dtype_name(from.codes.dtype), dtype_name(op.destination.dtype));
        return false;
    }
    if (from.codes.count != op.destination.count) {
        reason.set("%lld codes for %lld values", static_cast<long long>(from.codes.count),
                   static_cast<long long>(op.destination.count));
        return false;
    }
    if (from.grid.dtype == DType::fp8_e4m3 && from.tensor_amax == nullptr) {
        reason.set("nvfp4 needs the tensor's amax");
        return false;
    }
    return detail::is_matrix(from.rows, from.columns, from.codes.count, reason) &&
           (!from.grid.exists() || detail::has_known_scales(from.grid, reason));
}

inline bool is_delayed_update(const DelayedUpdateDesc& op, Reason& reason) noexcept {
    if (op.rule.history_len < 1) {
        reason.set("a history of %d amaxes", op.rule.history_len);
        return false;
    }
    return true;
}

} // namespace mp
