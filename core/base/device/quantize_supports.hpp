// SPDX-License-Identifier: Apache-2.0
// Which quantize and dequantize operations have a meaning, the same for every backend.
#pragma once

#include "device/backend.hpp"

namespace mp {

namespace detail {

inline bool is_matrix(const ArrayRef& array, Reason& reason) noexcept {
    if (array.rows < 0 || array.columns < 0) {
        reason.set("a matrix of %lld x %lld", static_cast<long long>(array.rows),
                   static_cast<long long>(array.columns));
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
inline bool rule_fits_grid(const ArrayRef& codes, Reason& reason) noexcept {
    using numerics::ScaleRule;
    const numerics::ScalePolicy& policy = codes.format.policy;
    const DType scales = codes.format.grid.dtype;
    const bool is_nvfp4 = policy.rule == ScaleRule::nvfp4;
    const bool is_mx = numerics::is_mx(policy.rule);
    const bool gives_powers = policy.power_of_two || policy.rule == ScaleRule::msamp;
    const bool fits = scales == DType::fp8_e4m3 ? is_nvfp4
                      : scales == DType::e8m0   ? is_mx || (gives_powers && !is_nvfp4)
                                                : !is_mx && !is_nvfp4;
    if (!fits) {
        reason.set("scale rule %d does not give scales of %s", static_cast<int>(policy.rule),
                   dtype_name(scales));
        return false;
    }
    if (is_nvfp4 && (codes.dtype() != DType::fp4_e2m1 || codes.amax == nullptr)) {
        reason.set("nvfp4 has codes of fp4_e2m1 and an amax of the tensor");
        return false;
    }
    return true;
}

// What a sink may take of this source.
inline bool is_quantized_from(const ArrayRef& source, const ArrayRef& codes,
                              Reason& reason) noexcept {
    if (source.format.is_quantized() || !is_high_precision(source.dtype()) ||
        !is_code(codes.dtype())) {
        reason.set("plain fp32, fp16 or bf16 to fp8, fp16 or packed codes, not %s to %s",
                   dtype_name(source.dtype()), dtype_name(codes.dtype()));
        return false;
    }
    if (source.rows != codes.rows || source.columns != codes.columns) {
        reason.set("%lld x %lld numbers to %lld x %lld codes", static_cast<long long>(source.rows),
                   static_cast<long long>(source.columns), static_cast<long long>(codes.rows),
                   static_cast<long long>(codes.columns));
        return false;
    }
    return has_known_scales(codes.format.grid, reason) && rule_fits_grid(codes, reason);
}

inline bool delayed_fits_grid(const QuantizeDesc& op, Reason& reason) noexcept {
    const ScaleGrid& grid = op.sink.codes.format.grid;
    const bool is_delayed = op.sink.tracking.delayed != nullptr;
    const bool is_given = op.sink.given_amax != nullptr;
    if (is_delayed && grid != kTensorScale) {
        reason.set("delayed scaling has one fp32 scale for the tensor");
        return false;
    }
    const bool is_nvfp4 = op.sink.codes.format.policy.rule == numerics::ScaleRule::nvfp4;
    if (is_given && ((!grid.is_one() && !is_nvfp4) || is_delayed)) {
        reason.set("a given amax is for one scale for the tensor, or NVFP4, without delayed "
                   "scaling");
        return false;
    }
    if ((is_delayed || is_given) && op.sink.second.exists()) {
        reason.set("delayed scaling and a given amax are for one grid of scales, not for two");
        return false;
    }
    return true;
}

inline bool is_window(const Window& window, const ArrayRef& of, Reason& reason) noexcept {
    const bool is_inside = window.first_row >= 0 && window.first_column >= 0 && window.rows >= 0 &&
                           window.columns >= 0 && window.rows <= of.rows - window.first_row &&
                           window.columns <= of.columns - window.first_column;
    const int64_t block = is_in_blocks(of.dtype()) ? type_block(of.dtype()).elements : 1;
    if (!is_inside || window.first_column % block != 0 || window.columns % block != 0 ||
        of.columns % block != 0) {
        reason.set("a window of %lld x %lld from %lld, %lld on, of %lld x %lld in blocks of %lld",
                   static_cast<long long>(window.rows), static_cast<long long>(window.columns),
                   static_cast<long long>(window.first_row),
                   static_cast<long long>(window.first_column), static_cast<long long>(of.rows),
                   static_cast<long long>(of.columns), static_cast<long long>(block));
        return false;
    }
    return true;
}

} // namespace detail

inline bool is_quantize(const QuantizeDesc& op, Reason& reason) noexcept {
    const Sink& sink = op.sink;
    if (is_packed(sink.codes.dtype()) && sink.transposed != nullptr) {
        reason.set("codes of half a byte are not transposed: their blocks would be others");
        return false;
    }
    const bool has_first = sink.codes.data != nullptr || sink.transposed != nullptr;
    const bool lacks_second = sink.second.exists() && sink.second.data == nullptr;
    if (op.source.count() > 0 && (!has_first || lacks_second)) {
        reason.set(has_first ? "a second array has no memory"
                             : "neither codes nor transposed codes are asked for");
        return false;
    }
    return detail::is_matrix(op.source, reason) &&
           detail::is_quantized_from(op.source, sink.codes, reason) &&
           (!sink.second.exists() || detail::is_quantized_from(op.source, sink.second, reason)) &&
           detail::delayed_fits_grid(op, reason);
}

inline bool is_dequantize(const DequantizeDesc& op, Reason& reason) noexcept {
    const ArrayRef& from = op.source;
    const bool is_known = is_code(from.dtype()) || is_in_blocks(from.dtype());
    if (!is_known || !is_high_precision(op.destination.dtype)) {
        reason.set(
            "fp8, fp16 or packed codes or those of blocks to fp32, fp16 or bf16, not %s to %s",
            dtype_name(from.dtype()), dtype_name(op.destination.dtype));
        return false;
    }
    if (!detail::is_window(op.window, from, reason)) {
        return false;
    }
    if (op.window.count() != op.destination.count) {
        reason.set("%lld codes for %lld values", static_cast<long long>(op.window.count()),
                   static_cast<long long>(op.destination.count));
        return false;
    }
    if (from.format.grid.dtype == DType::fp8_e4m3 && from.amax == nullptr) {
        reason.set("nvfp4 needs the tensor's amax");
        return false;
    }
    return detail::is_matrix(from, reason) &&
           (!from.format.grid.exists() || detail::has_known_scales(from.format.grid, reason));
}

inline bool is_delayed_update(const DelayedUpdateDesc& op, Reason& reason) noexcept {
    if (op.rule.history_len < 1) {
        reason.set("a history of %d amaxes", op.rule.history_len);
        return false;
    }
    return true;
}

} // namespace mp
