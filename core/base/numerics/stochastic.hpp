// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding from fp32: the value goes away from zero with a probability equal to the
// dropped fraction of an ulp, so its mean is the input. The random bits are arguments, uniform over
// their range; philox.hpp makes them. All forms add the random bits below the kept ones and
// truncate: representable values are unchanged, and the sign never matters.
#pragma once

#include <cstdint>

#include "numerics/bf16.hpp"
#include "numerics/fp16.hpp"
#include "numerics/fp4.hpp"
#include "numerics/fp8.hpp"

namespace mp::numerics {

// r16 uniform in [0, 65536); upper bits are ignored. The probability is exact (16 bits are dropped,
// subnormals included). Above the largest finite value the next step is infinity, reached with the
// probability of that fraction. Infinity stays; a NaN is not touched by the random bits.
MP_HD_INLINE constexpr uint16_t float_to_bf16_sr(float x, uint32_t r16) {
    const uint32_t u = bits_from_float(x);
    const uint32_t rounded = (u + (r16 & 0xffffu)) >> 16;
    const uint32_t nan = (u >> 16) | (kFloatQuietBit >> 16);
    return static_cast<uint16_t>(is_nan_bits(u) ? nan : rounded);
}

// r32 uniform in [0, 2^32). Exact where at most 32 bits are dropped (magnitude >= 2^-33), below
// that to the nearest multiple of 2^-32. Overflow as in float_to_bf16_sr: from 65504 upward the
// next step is infinity.
MP_HD_INLINE constexpr uint16_t float_to_fp16_sr(float x, uint32_t r32) {
    const uint32_t u = bits_from_float(x);
    const uint32_t magnitude = min_u32(u & kFloatMagnitudeMask, bits_from_float(65536.0f));
    return detail::finish_fp16(u, Fp16Layout::encode_sr(magnitude, r32));
}

// r32 uniform in [0, 2^32). Exact for magnitudes >= 2^-18, below that to the nearest multiple of
// 2^-32. Saturates at +-448, infinity included.
MP_HD_INLINE constexpr uint8_t float_to_e4m3_sr(float x, uint32_t r32) {
    const uint32_t u = bits_from_float(x);
    const uint32_t magnitude = min_u32(u & kFloatMagnitudeMask, bits_from_float(kE4m3Max));
    return detail::finish_e4m3(u, E4m3Layout::encode_sr(magnitude, r32));
}

// r32 uniform in [0, 2^32). Exact for magnitudes >= 2^-25, below that to the nearest multiple of
// 2^-32. Saturates at +-57344, infinity included.
MP_HD_INLINE constexpr uint8_t float_to_e5m2_sr(float x, uint32_t r32) {
    const uint32_t u = bits_from_float(x);
    const uint32_t magnitude = min_u32(u & kFloatMagnitudeMask, bits_from_float(kE5m2Max));
    return detail::finish_e5m2(u, E5m2Layout::encode_sr(magnitude, r32));
}

// The same without saturation: above 448 the next step, as if the format went on, is 480, which is coded as NaN. So is
// everything from 480 on, infinity included.
MP_HD_INLINE constexpr uint8_t float_to_e4m3_sr_nonsat(float x, uint32_t r32) {
    const uint32_t u = bits_from_float(x);
    const uint32_t magnitude = min_u32(u & kFloatMagnitudeMask, bits_from_float(480.0f));
    return detail::finish_e4m3(u, E4m3Layout::encode_sr(magnitude, r32));
}

// The same without saturation: above 57344 the next step is infinity, and so is everything from 65536 on.
MP_HD_INLINE constexpr uint8_t float_to_e5m2_sr_nonsat(float x, uint32_t r32) {
    const uint32_t u = bits_from_float(x);
    const uint32_t magnitude = min_u32(u & kFloatMagnitudeMask, bits_from_float(65536.0f));
    return detail::finish_e5m2(u, E5m2Layout::encode_sr(magnitude, r32));
}

// r32 uniform in [0, 2^32). Exact for magnitudes >= 2^-10, below that to the nearest multiple of
// 2^-32. Saturates at +-6, infinity included.
MP_HD_INLINE constexpr uint8_t float_to_e2m1_sr(float x, uint32_t r32) {
    const uint32_t u = bits_from_float(x);
    const uint32_t magnitude = min_u32(u & kFloatMagnitudeMask, bits_from_float(kE2m1Max));
    return detail::finish_e2m1(u, E2m1Layout::encode_sr(magnitude, r32));
}

} // namespace mp::numerics
