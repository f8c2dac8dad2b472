// SPDX-License-Identifier: Apache-2.0
// MS-AMP's scale of a tensor: the largest power of two with amax * multiply <= max_code, that is
// 2^floor(log2(max_code / amax)), computed from exponents and mantissas and therefore exactly.
// Two repairs. MS-AMP inverts the previous scale where amax is infinite, and takes infinity as the
// scale where amax is tiny; here a zero or non-finite amax keeps the previous scale, and the
// exponent stays within [-126, 126], so that scale and inverse are normal numbers.
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/scale_rules.hpp"

namespace mp::numerics {

// max_code is a normal number.
MP_HD_INLINE constexpr float msamp_multiply(float amax, float max_code, float previous) {
    const uint32_t a = bits_from_float(amax) & kFloatMagnitudeMask;
    const uint32_t m = bits_from_float(max_code);
    if (a == 0 || a >= kFloatInfinity) {
        return previous;
    }
    constexpr uint32_t kMantissa = 0x007fffffu;
    // A subnormal amax has exponent field 0, one below its true one at most: beyond 126 either way.
    const int32_t exponent = static_cast<int32_t>(m >> 23) - static_cast<int32_t>(a >> 23) -
                             ((a & kMantissa) > (m & kMantissa) ? 1 : 0);
    return exp2_int(exponent < -126 ? -126 : (exponent > 126 ? 126 : exponent));
}

// The same with what is stored; the previous scale is given as it was stored.
MP_HD_INLINE constexpr BlockScale msamp_block_scale(float amax, float max_code,
                                                    float previous_scale_inv) {
    const float multiply = msamp_multiply(amax, max_code, 0.0F);
    if (multiply == 0.0F) {
        return {1.0F / previous_scale_inv, previous_scale_inv};
    }
    return {multiply, 1.0F / multiply};
}

} // namespace mp::numerics
