// SPDX-License-Identifier: Apache-2.0
// Which sums of parts have a meaning, the same for every backend. Parts come from other ranks, so nothing about them
// is taken on trust but the pointers.
#pragma once

#include "device/backend.hpp"
#include "numerics/part_sum.hpp"

namespace mp {

namespace detail {

inline bool is_part(const SumPartsDesc& op, const SumPart& part, Reason& reason) noexcept {
    const bool is_known = is_high_precision(part.dtype) || is_fp8(part.dtype) ||
                          (part.dtype == DType::int64 && op.mode == SumMode::fixed);
    if (!is_known) {
        reason.set("parts are fp32, fp16, bf16 or fp8 (int64 in fixed point), not %s",
                   dtype_name(part.dtype));
        return false;
    }
    if (part.scale_inv != nullptr && !is_fp8(part.dtype)) {
        reason.set("only fp8 parts have scales");
        return false;
    }
    if (part.scale_inv != nullptr &&
        (!op.grid.exists() || op.grid.dtype == DType::fp8_e4m3 || op.grid.block_rows > 1)) {
        reason.set("the scales of parts are fp32 or e8m0, of blocks in one row");
        return false;
    }
    return true;
}

// The stack of the additions never runs empty or over, and one value is left.
inline bool merges_fit(const SumPartsDesc& op, Reason& reason) noexcept {
    int64_t depth = 0;
    for (int32_t i = 0; i < op.part_count; ++i) {
        const int32_t merges = op.host_parts[i].merges;
        ++depth;
        if (depth > numerics::kSumDepth || merges < 0 || merges >= depth) {
            reason.set("part %d: %d additions with %lld values at hand, of %d at most", i, merges,
                       static_cast<long long>(depth), numerics::kSumDepth);
            return false;
        }
        depth -= merges;
    }
    if (depth != 1) {
        reason.set("%lld values are left, not one", static_cast<long long>(depth));
        return false;
    }
    return true;
}

inline bool sum_result_fits(const SumPartsDesc& op, Reason& reason) noexcept {
    const bool needs_blocks = op.mode == SumMode::fixed || op.mode == SumMode::largest;
    if (needs_blocks && op.block_amax == nullptr && op.count > 0) {
        reason.set("there is no array of the blocks' amaxes");
        return false;
    }
    if (op.mode == SumMode::fixed &&
        (op.fixed_bits < numerics::kFewestFixedBits || op.fixed_bits > numerics::fixed_bits(0))) {
        reason.set("fixed point of %d bits", op.fixed_bits);
        return false;
    }
    if (op.mode == SumMode::largest) {
        return true;
    }
    const DType to = op.destination.dtype;
    const bool is_known =
        is_high_precision(to) || (to == DType::int64 && op.mode == SumMode::fixed);
    if (!is_known || op.destination.count != op.count) {
        reason.set("the sum is fp32, fp16 or bf16 (int64 in fixed point) and has %lld elements, "
                   "not %s and %lld",
                   static_cast<long long>(op.count), dtype_name(to),
                   static_cast<long long>(op.destination.count));
        return false;
    }
    return true;
}

} // namespace detail

inline bool is_sum_parts(const SumPartsDesc& op, Reason& reason) noexcept {
    if (op.count < 0 || op.part_count < 1 || op.host_parts == nullptr || op.first_element < 0) {
        reason.set("%d parts of %lld elements from element %lld on", op.part_count,
                   static_cast<long long>(op.count), static_cast<long long>(op.first_element));
        return false;
    }
    for (int32_t i = 0; i < op.part_count; ++i) {
        if (!detail::is_part(op, op.host_parts[i], reason)) {
            return false;
        }
    }
    const bool has_order = op.mode == SumMode::fp32 || op.mode == SumMode::fp64;
    return (!has_order || detail::merges_fit(op, reason)) && detail::sum_result_fits(op, reason);
}

} // namespace mp
