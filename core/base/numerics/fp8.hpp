// SPDX-License-Identifier: Apache-2.0
// The two 8-bit formats of the OCP OFP8 specification: E4M3 ("fn": largest 448, no infinity, one
// NaN pattern per sign) and E5M2 (the upper byte of fp16; largest 57344, with infinity). From fp32
// in one rounding; going through fp16 first would round twice.
#pragma once

#include <cstdint>

#include "numerics/fp16.hpp"
#include "numerics/small_float.hpp"

namespace mp::numerics {

using E4m3Layout = SmallFloat<3, -6>;
using E5m2Layout = SmallFloat<2, -14>;

inline constexpr uint8_t kE4m3Nan = 0x7f;
inline constexpr uint8_t kE4m3MaxFinite = 0x7e;
inline constexpr float kE4m3Max = 448.0f;
inline constexpr uint8_t kE5m2Infinity = 0x7c;
inline constexpr uint8_t kE5m2MaxFinite = 0x7b;
inline constexpr uint8_t kE5m2QuietNan = 0x7e;
inline constexpr float kE5m2Max = 57344.0f;

MP_HD_INLINE constexpr float e4m3_to_float(uint8_t code) {
    const uint32_t magnitude = code & 0x7fu;
    const uint32_t sign = (static_cast<uint32_t>(code) & 0x80u) << 24;
    const uint32_t finite = E4m3Layout::decode(magnitude);
    return float_from_bits(sign | select_u32(magnitude == kE4m3Nan, kFloatQuietNan, finite));
}

MP_HD_INLINE constexpr float e5m2_to_float(uint8_t code) {
    return fp16_to_float(static_cast<uint16_t>(static_cast<uint32_t>(code) << 8));
}

namespace detail {
MP_HD_INLINE constexpr uint8_t finish_e4m3(uint32_t u, uint32_t code) {
    const uint32_t sign = (u & kFloatSignMask) >> 24;
    return static_cast<uint8_t>(sign | select_u32(is_nan_bits(u), kE4m3Nan, code));
}

MP_HD_INLINE constexpr uint8_t finish_e5m2(uint32_t u, uint32_t code) {
    const uint32_t sign = (u & kFloatSignMask) >> 24;
    const uint32_t nan = ((u >> E5m2Layout::kDrop) & 0x3u) | kE5m2QuietNan;
    return static_cast<uint8_t>(sign | select_u32(is_nan_bits(u), nan, code));
}
} // namespace detail

// Round to nearest even, not saturating: what rounds above 448, and infinity, becomes NaN.
MP_HD_INLINE constexpr uint8_t float_to_e4m3(float x) {
    const uint32_t u = bits_from_float(x);
    // 480 would be the value after 448; its pattern is the NaN.
    const uint32_t magnitude = min_u32(u & kFloatMagnitudeMask, bits_from_float(480.0f));
    return detail::finish_e4m3(u, E4m3Layout::encode_rne(magnitude));
}

// Round to nearest even, saturating: overflow and infinity become +-448; NaN stays NaN.
MP_HD_INLINE constexpr uint8_t float_to_e4m3_sat(float x) {
    const uint32_t u = bits_from_float(x);
    const uint32_t magnitude = min_u32(u & kFloatMagnitudeMask, bits_from_float(kE4m3Max));
    return detail::finish_e4m3(u, E4m3Layout::encode_rne(magnitude));
}

// Round to nearest even, overflow to infinity. A NaN keeps its sign and upper payload bit.
MP_HD_INLINE constexpr uint8_t float_to_e5m2(float x) {
    const uint32_t u = bits_from_float(x);
    const uint32_t magnitude = min_u32(u & kFloatMagnitudeMask, bits_from_float(65536.0f));
    return detail::finish_e5m2(u, E5m2Layout::encode_rne(magnitude));
}

// Round to nearest even, saturating: overflow and infinity become +-57344; NaN stays NaN.
MP_HD_INLINE constexpr uint8_t float_to_e5m2_sat(float x) {
    const uint32_t u = bits_from_float(x);
    const uint32_t magnitude = min_u32(u & kFloatMagnitudeMask, bits_from_float(kE5m2Max));
    return detail::finish_e5m2(u, E5m2Layout::encode_rne(magnitude));
}

} // namespace mp::numerics
