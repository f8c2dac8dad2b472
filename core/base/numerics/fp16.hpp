// SPDX-License-Identifier: Apache-2.0
// IEEE binary16. Bit-equal to F16C (vcvtps2ph with round to nearest, vcvtph2ps) on every input, NaN
// payloads included, so a kernel may use those instructions instead.
#pragma once

#include <cstdint>

#include "numerics/small_float.hpp"

namespace mp::numerics {

using Fp16Layout = SmallFloat<10, -14>;

inline constexpr uint16_t kFp16Infinity = 0x7c00;
inline constexpr uint16_t kFp16MaxFinite = 0x7bff;
inline constexpr uint16_t kFp16QuietNan = 0x7e00;
inline constexpr float kFp16Max = 65504.0f;

// A signalling NaN becomes quiet, as with vcvtph2ps.
MP_HD_INLINE constexpr float fp16_to_float(uint16_t code) {
    const uint32_t magnitude = code & 0x7fffu;
    const uint32_t sign = (static_cast<uint32_t>(code) & 0x8000u) << 16;
    const uint32_t quiet = magnitude > kFp16Infinity ? kFloatQuietBit : 0u;
    const uint32_t special = (magnitude << Fp16Layout::kDrop) | kFloatInfinity | quiet;
    const uint32_t finite = Fp16Layout::decode(magnitude);
    return float_from_bits(sign | select_u32(magnitude >= kFp16Infinity, special, finite));
}

namespace detail {
MP_HD_INLINE constexpr uint16_t finish_fp16(uint32_t u, uint32_t code) {
    const uint32_t sign = (u & kFloatSignMask) >> 16;
    const uint32_t nan = ((u >> Fp16Layout::kDrop) & 0x3ffu) | kFp16QuietNan;
    return static_cast<uint16_t>(sign | select_u32(is_nan_bits(u), nan, code));
}
} // namespace detail

// Round to nearest even, subnormals exact, overflow to infinity. A NaN keeps its sign and upper
// payload bits and becomes quiet.
MP_HD_INLINE constexpr uint16_t float_to_fp16(float x) {
    const uint32_t u = bits_from_float(x);
    // 2^16, the value after the largest finite one, is the pattern of infinity after rebiasing.
    const uint32_t magnitude = min_u32(u & kFloatMagnitudeMask, bits_from_float(65536.0f));
    return detail::finish_fp16(u, Fp16Layout::encode_rne(magnitude));
}

// As float_to_fp16, but overflow and infinity become +-65504.
MP_HD_INLINE constexpr uint16_t float_to_fp16_sat(float x) {
    const uint32_t u = bits_from_float(x);
    const uint32_t magnitude = min_u32(u & kFloatMagnitudeMask, bits_from_float(kFp16Max));
    return detail::finish_fp16(u, Fp16Layout::encode_rne(magnitude));
}

} // namespace mp::numerics
