// SPDX-License-Identifier: Apache-2.0
// E8M0, the block scale of the OCP microscaling formats: code c is 2^(c - 127), 255 is NaN; no
// sign, no zero. This is the format only; which exponent a block gets is a rule of the quantizer.
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"

namespace mp::numerics {

inline constexpr uint8_t kE8m0Nan = 0xff;

MP_HD_INLINE constexpr float e8m0_to_float(uint8_t code) {
    const uint32_t u = static_cast<uint32_t>(code) << 23;
    const uint32_t nan = kFloatQuietNan;
    // 2^-127 is an fp32 subnormal.
    return float_from_bits(code == kE8m0Nan ? nan : (code == 0 ? 0x00400000u : u));
}

// Nearest power of two, halves up, at least 2^-127. What has no power of two near it (zero,
// negative values, NaN, infinity, and what would round to 2^128) becomes NaN, as in ml_dtypes.
MP_HD_INLINE constexpr uint8_t float_to_e8m0(float x) {
    const uint32_t u = bits_from_float(x);
    const uint32_t normal = (u + 0x00400000u) >> 23;
    const uint32_t subnormal = u >= 0x00600000u ? 1u : 0u;
    const uint32_t code = u < 0x00800000u ? subnormal : normal;
    const bool is_positive = u != 0u && u < kFloatInfinity;
    return static_cast<uint8_t>(is_positive ? code : kE8m0Nan);
}

} // namespace mp::numerics
