// SPDX-License-Identifier: Apache-2.0
// What the Kokkos kernels take, the same for every execution space: all that has a meaning, in arrays aligned to their
// element size, because elements are read as such. No Kokkos here.
#pragma once

#include <cstdint>

#include "device/supports.hpp"

namespace mp::backends::kokkos {

namespace detail {

inline bool is_aligned(const void* data, DType dtype, Reason& reason) noexcept {
    if (mp::is_aligned(data, dtype)) {
        return true;
    }
    reason.set("an array of %s lies at %p, which is no multiple of its element size",
               dtype_name(dtype), data);
    return false;
}
inline bool is_aligned(const TensorRef& tensor, Reason& reason) noexcept {
    return is_aligned(tensor.data, tensor.dtype, reason);
}

inline bool segment_is_aligned(const UpdateSegment& s, Reason& reason) noexcept {
    const auto is = [&reason](const StepArray& a) {
        return !a.exists() || is_aligned(a.data, a.dtype, reason);
    };
    bool are = is(s.param) && is(s.grad) && is(s.compensation) && is(s.master);
    for (const StepArray& state : s.states) {
        are = are && is(state);
    }
    return are;
}

inline bool suits_kernels(const CastDesc& op, Reason& reason) noexcept {
    return is_aligned(op.source, reason) && is_aligned(op.destination, reason);
}
inline bool suits_kernels(const AmaxDesc& op, Reason& reason) noexcept {
    return is_aligned(op.source, reason);
}
inline bool suits_kernels(const ColumnSumDesc& op, Reason& reason) noexcept {
    return is_aligned(op.source, reason) && is_aligned(op.destination, reason) &&
           is_aligned(op.times, reason) && is_aligned(op.divisor, DType::fp32, reason);
}
inline bool suits_kernels(const DropoutDesc& op, Reason& reason) noexcept {
    return is_aligned(op.source, reason) && is_aligned(op.destination, reason);
}
inline bool suits_kernels(const RowNormDesc& op, Reason& reason) noexcept {
    return is_aligned(op.source, DType::fp32, reason) && is_aligned(op.result, DType::fp32, reason);
}
inline bool suits_kernels(const ScaleColumnsDesc& op, Reason& reason) noexcept {
    return is_aligned(op.source, reason) && is_aligned(op.destination, reason) &&
           is_aligned(op.magnitude, reason) && is_aligned(op.norm, DType::fp32, reason) &&
           is_aligned(op.bias, reason);
}
// The buffers come only with each run, so their alignment is checked there.
inline bool suits_kernels(const GemmDesc& /*op*/, Reason& /*reason*/) noexcept { return true; }
inline bool suits_kernels(const GradStatsDesc& op, Reason& reason) noexcept {
    for (int64_t i = 0; i < op.table.segment_count; ++i) {
        const StepArray& grad = op.table.host_segments[i].grad;
        if (!is_aligned(grad.data, grad.dtype, reason)) {
            return false;
        }
    }
    return true;
}
inline bool suits_kernels(const OptimizerUpdateDesc& op, Reason& reason) noexcept {
    for (int64_t i = 0; i < op.table.segment_count; ++i) {
        if (!segment_is_aligned(op.table.host_segments[i], reason)) {
            return false;
        }
    }
    return true;
}
// A byte of two codes is written by one thread, and nowhere but an amax or an fp32 scale is there room for the amax of a
// whole matrix until it is read.
inline bool suits_kernels(const Sink& sink, const ArrayRef& codes, Reason& reason) noexcept {
    const ScaleGrid& grid = codes.format.grid;
    if (is_packed(codes.dtype()) && (codes.columns % 2 != 0 || grid.block_columns % 2 != 0)) {
        reason.set("pairs of %s codes would belong to two rows or blocks",
                   dtype_name(codes.dtype()));
        return false;
    }
    const bool needs_amax =
        grid.is_one() && codes.amax == nullptr && sink.tracking.delayed == nullptr &&
        sink.given_amax == nullptr &&
        (grid.dtype != DType::fp32 || codes.format.policy.rule == numerics::ScaleRule::msamp);
    if (needs_amax) {
        reason.set("this scale of a whole tensor needs a place for the tensor's amax");
        return false;
    }
    return is_aligned(codes.data, codes.dtype(), reason);
}
inline bool suits_kernels(const QuantizeDesc& op, Reason& reason) noexcept {
    return suits_kernels(op.sink, op.sink.codes, reason) &&
           (!op.sink.second.exists() || suits_kernels(op.sink, op.sink.second, reason)) &&
           is_aligned(op.source.elements(), reason) &&
           is_aligned(op.sink.transposed, op.sink.codes.dtype(), reason);
}
inline bool suits_kernels(const DequantizeDesc& op, Reason& reason) noexcept {
    return is_aligned(op.destination, reason);
}
inline bool suits_kernels(const SumPartsDesc& op, Reason& reason) noexcept {
    for (int32_t i = 0; i < op.part_count; ++i) {
        const SumPart& part = op.host_parts[i];
        const bool has_scale = part.scale_inv != nullptr && op.grid.exists();
        if (!is_aligned(part.codes, part.dtype, reason) ||
            (has_scale && !is_aligned(part.scale_inv, op.grid.dtype, reason))) {
            return false;
        }
    }
    return op.mode == SumMode::largest || is_aligned(op.destination, reason);
}
inline bool suits_kernels(const ContentHashDesc& /*op*/, Reason& /*reason*/) noexcept {
    return true;
}
inline bool suits_kernels(const OptimizerPrepareDesc& /*op*/, Reason& /*reason*/) noexcept {
    return true;
}
inline bool suits_kernels(const ScalerUpdateDesc& /*op*/, Reason& /*reason*/) noexcept {
    return true;
}
inline bool suits_kernels(const DelayedUpdateDesc& /*op*/, Reason& /*reason*/) noexcept {
    return true;
}

} // namespace detail

template <class Desc> bool is_supported(const Desc& op, Reason& reason) noexcept {
    return has_meaning(op, reason) && detail::suits_kernels(op, reason);
}

inline bool buffers_are_aligned(const GemmDesc& op, const GemmBuffers& buffers,
                                Reason& reason) noexcept {
    const bool uses_c = op.beta != 0.0F;
    const bool uses_bias = op.dtype_bias != DType::none;
    return detail::is_aligned(buffers.a, op.dtype_a, reason) &&
           detail::is_aligned(buffers.b, op.dtype_b, reason) &&
           detail::is_aligned(buffers.d, op.dtype_d, reason) &&
           (!uses_c || detail::is_aligned(buffers.c, op.dtype_d, reason)) &&
           (!uses_bias || detail::is_aligned(buffers.bias, op.dtype_bias, reason));
}

} // namespace mp::backends::kokkos
