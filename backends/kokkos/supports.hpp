// SPDX-License-Identifier: Apache-2.0
// What the Kokkos kernels take, the same for every execution space. Where `aligned` is set they
// also need arrays aligned to their element size: the elements are then read as such.
#pragma once

#include <cstdint>

#include "interface/backend.hpp"

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

// fp32, fp16 or bf16: what an optimizer keeps.
inline bool is_state_array(const char* what, const void* data, DType dtype, bool aligned,
                           Reason& reason) noexcept {
    if (dtype != DType::fp32 && dtype != DType::fp16 && dtype != DType::bf16) {
        reason.set("%s of fp32, fp16 or bf16 only, not %s", what, dtype_name(dtype));
        return false;
    }
    return is_aligned(data, dtype, aligned, reason);
}

inline bool segment_is_supported(const AdamwSegment& s, bool aligned, Reason& reason) noexcept {
    if (!is_state_array("a parameter", s.param, s.param_dtype, aligned, reason) ||
        !is_state_array("a gradient", s.grad, s.grad_dtype, aligned, reason) ||
        !is_state_array("exp_avg", s.exp_avg, s.exp_avg_dtype, aligned, reason) ||
        !is_state_array("exp_avg_sq", s.exp_avg_sq, s.exp_avg_sq_dtype, aligned, reason)) {
        return false;
    }
    if (s.compensation_dtype != DType::none &&
        !is_state_array("a compensation", s.compensation, s.compensation_dtype, aligned, reason)) {
        return false;
    }
    if (s.master_dtype == DType::none) {
        return true;
    }
    if (s.master_dtype != DType::fp32 || s.compensation_dtype != DType::none) {
        reason.set("a master weight is fp32 and excludes a compensation");
        return false;
    }
    return is_aligned(s.master, s.master_dtype, aligned, reason);
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
        const AdamwSegment& s = op.table.host_segments[i];
        if (!detail::is_state_array("a gradient", s.grad, s.grad_dtype, aligned, reason)) {
            return false;
        }
    }
    return true;
}

inline bool is_supported(const OptimizerPrepareDesc& /*op*/, bool /*aligned*/,
                         Reason& /*reason*/) noexcept {
    return true;
}

inline bool is_supported(const AdamwDesc& op, bool aligned, Reason& reason) noexcept {
    if (op.eager_compat) {
        reason.set("the eager order of roundings is the reference's alone");
        return false;
    }
    for (int64_t i = 0; i < op.table.segment_count; ++i) {
        if (!detail::segment_is_supported(op.table.host_segments[i], aligned, reason)) {
            return false;
        }
    }
    return true;
}

inline bool is_supported(const ScalerUpdateDesc& /*op*/, bool /*aligned*/,
                         Reason& /*reason*/) noexcept {
    return true;
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
