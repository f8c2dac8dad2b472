// SPDX-License-Identifier: Apache-2.0
// The arithmetic of magnitudes and norms (DoRA), in fp32.
#pragma once

#include <cmath>
#include <cstdint>

#include "numerics/bits.hpp"

namespace mp::numerics {

// A sum of squares has so many partial sums: RowNormDesc.
inline constexpr int kNormLanes = 32;

// sum + x^2, rounded once.
MP_HD_INLINE float plus_square(float sum, float x) { return fmaf(x, x, sum); }

// x / y, rounded once; +0 where y is 0 of either sign: what has no norm has no direction. By masks, so that loops become
// vectors.
MP_HD_INLINE constexpr float quotient_or_zero(float x, float y) {
    const bool is_zero = (bits_from_float(y) & kFloatMagnitudeMask) == 0;
    return float_from_bits(select_u32(is_zero, 0U, bits_from_float(x / y)));
}

} // namespace mp::numerics
