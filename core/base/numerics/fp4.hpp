// SPDX-License-Identifier: Apache-2.0
// E2M1, the 4-bit format of the OCP microscaling formats: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their
// negatives; no infinity, no NaN. A code is the low four bits of a byte; two lie in one byte of an
// array, the first in the low half.
#pragma once

#include <cstdint>

#include "numerics/small_float.hpp"

namespace mp::numerics {

using E2m1Layout = SmallFloat<1, 0>;

inline constexpr uint8_t kE2m1MaxFinite = 0x7;
inline constexpr float kE2m1Max = 6.0f;

MP_HD_INLINE constexpr float e2m1_to_float(uint8_t code) {
    const uint32_t sign = (static_cast<uint32_t>(code) & 0x8u) << 28;
    return float_from_bits(sign | E2m1Layout::decode(code & 0x7u));
}

namespace detail {
// A NaN becomes +6, as by the conversions of NVIDIA's GPUs. Whoever must see it looks at the scale.
MP_HD_INLINE constexpr uint8_t finish_e2m1(uint32_t u, uint32_t code) {
    const uint32_t sign = (u & kFloatSignMask) >> 28;
    return static_cast<uint8_t>(select_u32(is_nan_bits(u), kE2m1MaxFinite, sign | code));
}
} // namespace detail

// Round to nearest even; overflow and infinity become +-6.
MP_HD_INLINE constexpr uint8_t float_to_e2m1(float x) {
    const uint32_t u = bits_from_float(x);
    const uint32_t magnitude = min_u32(u & kFloatMagnitudeMask, bits_from_float(kE2m1Max));
    return detail::finish_e2m1(u, E2m1Layout::encode_rne(magnitude));
}

} // namespace mp::numerics
