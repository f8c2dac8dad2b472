// SPDX-License-Identifier: Apache-2.0
// bfloat16: the upper half of fp32. Integer code only, so subnormals are exact whatever the
// flush-to-zero setting (the AVX512_BF16 instruction flushes them and must not be used in its
// place).
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"

namespace mp::numerics {

inline constexpr uint16_t kBf16Infinity = 0x7f80;
inline constexpr uint16_t kBf16MaxFinite = 0x7f7f;
inline constexpr uint16_t kBf16QuietNan = 0x7fc0;

MP_HD_INLINE constexpr float bf16_to_float(uint16_t code) {
    return float_from_bits(static_cast<uint32_t>(code) << 16);
}

// Round to nearest even; overflow goes to infinity as in IEEE 754. A NaN keeps its sign and upper
// payload bits and becomes quiet.
MP_HD_INLINE constexpr uint16_t float_to_bf16(float x) {
    const uint32_t u = bits_from_float(x);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const uint32_t nan = (u >> 16) | (kFloatQuietBit >> 16);
    return static_cast<uint16_t>(is_nan_bits(u) ? nan : rounded);
}

// As float_to_bf16, but what would become infinity, infinity itself included, becomes the largest
// finite value of the same sign.
MP_HD_INLINE constexpr uint16_t float_to_bf16_sat(float x) {
    const uint32_t u = bits_from_float(x);
    const uint32_t limit = static_cast<uint32_t>(kBf16MaxFinite) << 16;
    const uint32_t magnitude = min_u32(u & kFloatMagnitudeMask, limit);
    const uint32_t rounded = (magnitude + 0x7fffu + ((magnitude >> 16) & 1u)) >> 16;
    const uint32_t sign = (u & kFloatSignMask) >> 16;
    const uint32_t nan = (u >> 16) | (kFloatQuietBit >> 16);
    return static_cast<uint16_t>(is_nan_bits(u) ? nan : (sign | rounded));
}

} // namespace mp::numerics
