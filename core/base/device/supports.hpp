// SPDX-License-Identifier: Apache-2.0
// Which operations have a meaning, the same for every backend: has_meaning(desc, reason), one for each kind. A backend
// whose kernels compute all that has one says takes_all<Desc>; others add their own limits.
#pragma once

#include "device/backend.hpp"
#include "device/gemm_scales.hpp"
#include "device/quantize_supports.hpp"
#include "device/sum_supports.hpp"
#include "device/update_supports.hpp"

namespace mp {

namespace detail {

inline bool are_floating(const char* what, DType from, DType to, Reason& reason) noexcept {
    if (!is_floating(from) || !is_floating(to)) {
        reason.set("%s floating types only, not %s and %s", what, dtype_name(from), dtype_name(to));
        return false;
    }
    return true;
}
inline bool are_wide(const char* what, DType from, DType to, Reason& reason) noexcept {
    if (!is_high_precision(from) || !is_high_precision(to)) {
        reason.set("%s fp32, fp16 and bf16, not %s and %s", what, dtype_name(from), dtype_name(to));
        return false;
    }
    return true;
}

} // namespace detail

inline bool has_meaning(const CastDesc& op, Reason& reason) noexcept {
    return detail::are_floating("a cast is between", op.source.dtype, op.destination.dtype, reason);
}

inline bool has_meaning(const AmaxDesc& op, Reason& reason) noexcept {
    return detail::are_floating("the amax is of", op.source.dtype, op.source.dtype, reason);
}

inline bool has_meaning(const ContentHashDesc& /*op*/, Reason& /*reason*/) noexcept { return true; }

inline bool has_meaning(const ColumnSumDesc& op, Reason& reason) noexcept {
    return detail::are_floating("sums are of", op.source.dtype, op.destination.dtype, reason) &&
           (op.times.dtype == DType::none ||
            detail::are_wide("products are summed of", op.source.dtype, op.times.dtype, reason));
}

inline bool has_meaning(const DropoutDesc& op, Reason& reason) noexcept {
    if (op.drop_below >= numerics::kDropoutUnit || op.first_element < 0 ||
        op.source.count != op.destination.count) {
        reason.set("%u of %u of %lld elements are dropped into %lld, from element %lld on",
                   op.drop_below, numerics::kDropoutUnit, static_cast<long long>(op.source.count),
                   static_cast<long long>(op.destination.count),
                   static_cast<long long>(op.first_element));
        return false;
    }
    return detail::are_wide("dropout is between", op.source.dtype, op.destination.dtype, reason);
}

inline bool has_meaning(const RowNormDesc& /*op*/, Reason& /*reason*/) noexcept { return true; }

inline bool has_meaning(const ScaleColumnsDesc& op, Reason& reason) noexcept {
    const DType bias = op.bias.dtype != DType::none ? op.bias.dtype : op.magnitude.dtype;
    return detail::are_wide("scaled columns are", op.source.dtype, op.destination.dtype, reason) &&
           detail::are_wide("magnitudes and a bias are", op.magnitude.dtype, bias, reason);
}

inline bool has_meaning(const GemmDesc& op, Reason& reason) noexcept {
    if (has_coded_b(op)) {
        reason.set("B is %s, and this decodes none", dtype_name(op.dtype_b));
        return false;
    }
    const DType bias = op.dtype_bias != DType::none ? op.dtype_bias : DType::fp32;
    if (!detail::are_floating("a product is of", op.dtype_a, op.dtype_b, reason) ||
        !detail::are_floating("a product and its bias are", op.dtype_d, bias, reason)) {
        return false;
    }
    for (const ScaleGrid& grid : {op.scale_a, op.scale_b}) {
        if (grid.exists() && grid.dtype != DType::fp32 && grid.dtype != DType::e8m0) {
            reason.set("scales of fp32 or e8m0 only, not %s", dtype_name(grid.dtype));
            return false;
        }
    }
    return true;
}

inline bool has_meaning(const GradStatsDesc& op, Reason& reason) noexcept {
    for (int64_t i = 0; i < op.table.segment_count; ++i) {
        if (!gradient_is_supported(op.table.host_segments[i], reason)) {
            return false;
        }
    }
    return true;
}

inline bool has_meaning(const OptimizerPrepareDesc& /*op*/, Reason& /*reason*/) noexcept {
    return true;
}
inline bool has_meaning(const ScalerUpdateDesc& /*op*/, Reason& /*reason*/) noexcept {
    return true;
}
inline bool has_meaning(const OptimizerUpdateDesc& op, Reason& reason) noexcept {
    return update_is_supported<AllFormats>(op, reason);
}
inline bool has_meaning(const QuantizeDesc& op, Reason& reason) noexcept {
    return is_quantize(op, reason);
}
inline bool has_meaning(const DequantizeDesc& op, Reason& reason) noexcept {
    return is_dequantize(op, reason);
}
inline bool has_meaning(const DelayedUpdateDesc& op, Reason& reason) noexcept {
    return is_delayed_update(op, reason);
}
inline bool has_meaning(const SumPartsDesc& op, Reason& reason) noexcept {
    return is_sum_parts(op, reason);
}

// Candidate::supports of kernels that take all that has a meaning.
template <class Desc>
bool takes_all(const Device& /*device*/, const OpDesc& op, Reason& reason) noexcept {
    return has_meaning(static_cast<const Desc&>(op), reason);
}

} // namespace mp
