// SPDX-License-Identifier: Apache-2.0
// Which scale belongs to which element of a product, and what becomes of a result that is stored as
// fp8: the rules of GemmDesc, for host and device.
#pragma once

#include "device/ops.hpp"
#include "numerics/bits.hpp"
#include "numerics/codec.hpp"

namespace mp {

// Whether B is codes beside an A of numbers. Few implementations read them; core/gemm has a way for all.
MP_HD_INLINE constexpr bool has_coded_b(const GemmDesc& op) {
    return is_high_precision(op.dtype_a) &&
           (is_fp8(op.dtype_b) || is_packed(op.dtype_b) || is_in_blocks(op.dtype_b));
}

// Elements of k that share a scale of A, or of B; 0: all.
MP_HD_INLINE constexpr int64_t block_k_of_a(const GemmDesc& op) {
    const int64_t extent = op.trans_a ? op.scale_a.block_rows : op.scale_a.block_columns;
    return op.scale_a.exists() && extent < op.k ? extent : 0;
}
MP_HD_INLINE constexpr int64_t block_k_of_b(const GemmDesc& op) {
    const int64_t extent = op.trans_b ? op.scale_b.block_columns : op.scale_b.block_rows;
    return op.scale_b.exists() && extent < op.k ? extent : 0;
}

// Of both: the finer one, which divides the other. 0: no scale changes along k.
MP_HD_INLINE constexpr int64_t scale_block_k(const GemmDesc& op) {
    const int64_t a = block_k_of_a(op);
    const int64_t b = block_k_of_b(op);
    return a == 0 || (b != 0 && b < a) ? b : a;
}

// No scale is applied to a sum of nothing: there may be none, where blocks are cut along k.
MP_HD_INLINE constexpr bool has_scales(const GemmDesc& op) {
    return op.k > 0 && (op.scale_a.exists() || op.scale_b.exists());
}

namespace detail {
MP_HD_INLINE float scale_at(const ScaleGrid& grid, const void* scales, int64_t row, int64_t column,
                            int64_t columns) {
    const int64_t i = grid.index(row, column, columns);
    return grid.dtype == DType::e8m0
               ? numerics::e8m0_to_float(static_cast<const uint8_t*>(scales)[i])
               : numerics::detail::load_element<float>(scales, i);
}
} // namespace detail

// Of element (row, k) of op(A); 1 where A has no scales.
MP_HD_INLINE float scale_of_a(const GemmDesc& op, const void* scales, int64_t row, int64_t k) {
    if (!op.scale_a.exists()) {
        return 1.0F;
    }
    return op.trans_a ? detail::scale_at(op.scale_a, scales, k, row, op.m)
                      : detail::scale_at(op.scale_a, scales, row, k, op.k);
}

// Of element (k, column) of op(B); 1 where B has no scales.
MP_HD_INLINE float scale_of_b(const GemmDesc& op, const void* scales, int64_t k, int64_t column) {
    if (!op.scale_b.exists()) {
        return 1.0F;
    }
    return op.trans_b ? detail::scale_at(op.scale_b, scales, column, k, op.k)
                      : detail::scale_at(op.scale_b, scales, k, column, op.n);
}

// d * multiply, ready to be rounded to an fp8 type without saturation: a finite d stays finite, an
// infinite one shows as what the type has for it.
MP_HD_INLINE float before_fp8(float d, float multiply, DType dtype) {
    const float limit = max_finite(dtype);
    const float x = d * multiply;
    const uint32_t magnitude = numerics::bits_from_float(d) & numerics::kFloatMagnitudeMask;
    if (magnitude >= numerics::kFloatInfinity) {
        return x;
    }
    const float below = x > limit ? limit : x;
    return below < -limit ? -limit : below;
}

} // namespace mp
