// SPDX-License-Identifier: Apache-2.0
// What the Kokkos kernels take, the same for every execution space. Where `aligned` is set they
// also need arrays aligned to their element size: the elements are then read as such.
#pragma once

#include <cstdint>

#include "interface/backend.hpp"
#include "interface/quantize_supports.hpp"
#include "interface/sum_supports.hpp"
#include "kernels/update_layout.hpp"

namespace mp::backends::kokkos {

namespace detail {

inline bool is_aligned(const void* data, DType dtype, bool aligned, Reason& reason) noexcept {
    if (!aligned ||
        reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(dtype_size(dtype)) == 0) {
        return true;
    }
    reason.set("an array of %s lies at %p, which is no multiple of its element size",
               dtype_name(dtype), data);
    return false;
}

inline bool is_float_array(const TensorRef& tensor, bool aligned, Reason& reason) noexcept {
    if (!is_floating(tensor.dtype)) {
        reason.set("floating types only, not %s", dtype_name(tensor.dtype));
        return false;
    }
    return is_aligned(tensor.data, tensor.dtype, aligned, reason);
}

inline bool segment_is_aligned(const UpdateSegment& s, bool aligned, Reason& reason) noexcept {
    const auto is = [aligned, &reason](const StepArray& a) {
        return !a.exists() || is_aligned(a.data, a.dtype, aligned, reason);
    };
    bool are = is(s.param) && is(s.grad) && is(s.compensation) && is(s.master);
    for (const StepArray& state : s.states) {
        are = are && is(state);
    }
    return are;
}

} // namespace detail

inline bool is_supported(const CastDesc& op, bool aligned, Reason& reason) noexcept {
    return detail::is_float_array(op.source, aligned, reason) &&
           detail::is_float_array(op.destination, aligned, reason);
}

inline bool is_supported(const AmaxDesc& op, bool aligned, Reason& reason) noexcept {
    return detail::is_float_array(op.source, aligned, reason);
}

inline bool is_supported(const ColumnSumDesc& op, bool aligned, Reason& reason) noexcept {
    return detail::is_float_array(op.source, aligned, reason) &&
           detail::is_float_array(op.destination, aligned, reason);
}

// The buffers come only with each run, so their alignment is checked there.
inline bool is_supported(const GemmDesc& op, bool /*aligned*/, Reason& reason) noexcept {
    const DType dtypes[] = {op.dtype_a, op.dtype_b, op.dtype_d, op.dtype_bias};
    for (const DType dtype : dtypes) {
        if (dtype != DType::none && !is_floating(dtype)) {
            reason.set("floating types only, not %s", dtype_name(dtype));
            return false;
        }
    }
    for (const ScaleGrid& grid : {op.scale_a, op.scale_b}) {
        if (grid.exists() && grid.dtype != DType::fp32 && grid.dtype != DType::e8m0) {
            reason.set("scales of fp32 or e8m0 only, not %s", dtype_name(grid.dtype));
            return false;
        }
    }
    return true;
}

inline bool is_supported(const GradStatsDesc& op, bool aligned, Reason& reason) noexcept {
    for (int64_t i = 0; i < op.table.segment_count; ++i) {
        const UpdateSegment& s = op.table.host_segments[i];
        if (!kernels::gradient_is_supported(s, reason) ||
            !detail::is_aligned(s.grad.data, s.grad.dtype, aligned, reason)) {
            return false;
        }
    }
    return true;
}

inline bool is_supported(const OptimizerPrepareDesc& /*op*/, bool /*aligned*/,
                         Reason& /*reason*/) noexcept {
    return true;
}

inline bool is_supported(const OptimizerUpdateDesc& op, bool aligned, Reason& reason) noexcept {
    const bool takes = aligned // an accelerator
                           ? kernels::update_is_supported<kernels::ElementFormats>(op, reason)
                           : kernels::update_is_supported<AllFormats>(op, reason);
    for (int64_t i = 0; takes && i < op.table.segment_count; ++i) {
        if (!detail::segment_is_aligned(op.table.host_segments[i], aligned, reason)) {
            return false;
        }
    }
    return takes;
}

inline bool is_supported(const ScalerUpdateDesc& /*op*/, bool /*aligned*/,
                         Reason& /*reason*/) noexcept {
    return true;
}

// Accelerators write a byte of two codes by one thread, and have nowhere but the amax or an fp32 scale for the
// amax of a whole matrix while they need it.
inline bool is_supported(const QuantizeDesc& op, bool aligned, Reason& reason) noexcept {
    if (!is_quantize(op, reason)) {
        return false;
    }
    if (aligned && op.dtype == DType::fp4_e2m1 &&
        (op.columns % 2 != 0 || op.grid.block_columns % 2 != 0)) {
        reason.set("pairs of %s codes would belong to two rows or blocks", dtype_name(op.dtype));
        return false;
    }
    const bool needs_amax =
        op.grid.block_rows == 0 && op.grid.block_columns == 0 && op.amax == nullptr &&
        op.slot == nullptr &&
        (op.grid.dtype != DType::fp32 || op.policy.rule == numerics::ScaleRule::msamp);
    if (aligned && needs_amax) {
        reason.set("this scale of a whole tensor needs a place for the tensor's amax");
        return false;
    }
    return detail::is_aligned(op.source.data, op.source.dtype, aligned, reason) &&
           (op.dtype != DType::fp16 ||
            (detail::is_aligned(op.codes, op.dtype, aligned, reason) &&
             detail::is_aligned(op.codes_transposed, op.dtype, aligned, reason)));
}

inline bool is_supported(const DequantizeDesc& op, bool aligned, Reason& reason) noexcept {
    return is_dequantize(op, reason) &&
           detail::is_aligned(op.destination.data, op.destination.dtype, aligned, reason);
}

inline bool is_supported(const DelayedUpdateDesc& op, bool /*aligned*/, Reason& reason) noexcept {
    return is_delayed_update(op, reason);
}

inline bool is_supported(const SumPartsDesc& op, bool aligned, Reason& reason) noexcept {
    if (!is_sum_parts(op, reason)) {
        return false;
    }
    for (int32_t i = 0; i < op.part_count; ++i) {
        const SumPart& part = op.host_parts[i];
        const bool has_scale = part.scale_inv != nullptr && op.grid.exists();
        if (!detail::is_aligned(part.codes, part.dtype, aligned, reason) ||
            (has_scale && !detail::is_aligned(part.scale_inv, op.grid.dtype, aligned, reason))) {
            return false;
        }
    }
    return op.mode == SumMode::largest ||
           detail::is_aligned(op.destination.data, op.destination.dtype, aligned, reason);
}

inline bool buffers_are_aligned(const GemmDesc& op, const GemmBuffers& buffers, bool aligned,
                                Reason& reason) noexcept {
    const bool uses_c = op.beta != 0.0F;
    const bool uses_bias = op.dtype_bias != DType::none;
    return detail::is_aligned(buffers.a, op.dtype_a, aligned, reason) &&
           detail::is_aligned(buffers.b, op.dtype_b, aligned, reason) &&
           detail::is_aligned(buffers.d, op.dtype_d, aligned, reason) &&
           (!uses_c || detail::is_aligned(buffers.c, op.dtype_d, aligned, reason)) &&
           (!uses_bias || detail::is_aligned(buffers.bias, op.dtype_bias, aligned, reason));
}

} // namespace mp::backends::kokkos
