// SPDX-License-Identifier: Apache-2.0
// Bit patterns of fp32 and fp64, and the few integer helpers the formats share.
// Not a conversion between formats: those are in bf16.hpp, fp16.hpp, fp8.hpp, e8m0.hpp.
#pragma once

#include <cstdint>

#include "dtype/host_device.hpp"

namespace mp::numerics {

// The builtin and not std::bit_cast: the latter is not a device function without extra flags.
MP_HD_INLINE constexpr uint32_t bits_from_float(float x) { return __builtin_bit_cast(uint32_t, x); }
MP_HD_INLINE constexpr float float_from_bits(uint32_t u) { return __builtin_bit_cast(float, u); }
MP_HD_INLINE constexpr uint64_t bits_from_double(double x) {
    return __builtin_bit_cast(uint64_t, x);
}
MP_HD_INLINE constexpr double double_from_bits(uint64_t u) { return __builtin_bit_cast(double, u); }

inline constexpr uint32_t kFloatSignMask = 0x80000000u;
inline constexpr uint32_t kFloatMagnitudeMask = 0x7fffffffu;
inline constexpr uint32_t kFloatInfinity = 0x7f800000u;
inline constexpr uint32_t kFloatQuietNan = 0x7fc00000u;
inline constexpr uint32_t kFloatQuietBit = 0x00400000u;

// The tests work on the pattern, so no compiler flag about NaN or infinity can remove them.
MP_HD_INLINE constexpr bool is_nan_bits(uint32_t u) {
    return (u & kFloatMagnitudeMask) > kFloatInfinity;
}
MP_HD_INLINE constexpr bool is_nan(float x) { return is_nan_bits(bits_from_float(x)); }
MP_HD_INLINE constexpr bool is_finite(float x) {
    return (bits_from_float(x) & kFloatMagnitudeMask) < kFloatInfinity;
}

// condition ? a : b by masks. Where both sides cost something, ?: lets the compiler move them into
// branches, and a loop with a conversion inside a branch is not vectorized (gcc 12).
MP_HD_INLINE constexpr uint32_t select_u32(bool condition, uint32_t a, uint32_t b) {
    const uint32_t mask = 0u - static_cast<uint32_t>(condition);
    return (a & mask) | (b & ~mask);
}

// Saturation before stochastic rounding: the largest finite value of a type, `limit`, is one of its numbers, so rounding
// cannot leave it. A NaN keeps its bits; a GPU's own minimum of two numbers would put another NaN in its place.
MP_HD_INLINE constexpr float clamp_to_finite(float x, float limit) {
    const uint32_t u = bits_from_float(x);
    const uint32_t magnitude = u & kFloatMagnitudeMask;
    const bool is_beyond = magnitude > bits_from_float(limit) && magnitude <= kFloatInfinity;
    return float_from_bits(select_u32(is_beyond, (u & kFloatSignMask) | bits_from_float(limit), u));
}

MP_HD_INLINE constexpr uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

// The bits of the largest |x|: NaN beats infinity beats numbers.
MP_HD_INLINE constexpr uint32_t amax_bits(const float* x, int64_t count) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; ++i) {
        const uint32_t magnitude = bits_from_float(x[i]) & kFloatMagnitudeMask;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

// 2^exponent for a normal fp32 exponent, -126 <= exponent <= 127.
MP_HD_INLINE constexpr float exp2_int(int32_t exponent) {
    return float_from_bits(static_cast<uint32_t>(exponent + 127) << 23);
}

} // namespace mp::numerics
