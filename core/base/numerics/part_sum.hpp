// SPDX-License-Identifier: Apache-2.0
// The arithmetic of sums over ranks beside plain addition: fixed point, whose sums have no order, and one rounding
// from fp64 to a narrow type.
#pragma once

#include <cstdint>

#include "numerics/bf16.hpp"
#include "numerics/bits.hpp"
#include "numerics/fp16.hpp"

namespace mp::numerics {

// Elements that share the unit of fixed point.
inline constexpr int64_t kExactBlock = 128;
// What a NaN is among units.
inline constexpr int64_t kUnitsNan = INT64_MIN;
// Values a sum of parts can have at once: a tree over 2^22 slots and one more.
inline constexpr int32_t kSumDepth = 24;

// Bits that a magnitude has in fixed point, so that 2^log2_slots of them cannot overflow: 62 less one for the sign of
// the sum, less the slots'.
MP_HD_INLINE constexpr int32_t fixed_bits(int32_t log2_slots) { return 61 - log2_slots; }
inline constexpr int32_t kFewestFixedBits = 61 - 30;

// 2^exponent for a normal fp64 exponent.
MP_HD_INLINE constexpr double exp2_double(int32_t exponent) {
    return double_from_bits(static_cast<uint64_t>(exponent + 1023) << 52);
}

struct FixedPoint {
    double units_in_one = 1.0;
    double unit = 1.0;
    uint32_t amax_bits = 0;
    bool is_finite = true;
};

// The unit is 2^-bits of the smallest power of two above the block's largest magnitude.
MP_HD_INLINE constexpr FixedPoint fixed_point(uint32_t amax_bits, int32_t bits) {
    const bool finite = amax_bits < kFloatInfinity;
    const auto field = static_cast<int32_t>(finite ? amax_bits >> 23 : 0U);
    const int32_t above = field == 0 ? -126 : field - 126;
    return {exp2_double(bits - above), exp2_double(above - bits), finite ? amax_bits : 0U, finite};
}

// x in units, what is below one cut off; kUnitsNan for what the block's amax excludes.
MP_HD_INLINE constexpr int64_t to_fixed(const FixedPoint& f, float x) {
    const uint32_t magnitude = bits_from_float(x) & kFloatMagnitudeMask;
    const bool fits = f.is_finite && magnitude <= f.amax_bits;
    const double scaled = static_cast<double>(fits ? x : 0.0F) * f.units_in_one;
    const auto units = static_cast<int64_t>(scaled);
    return fits ? units : kUnitsNan;
}

// As fp64 with what does not fit folded into the last bit kept, so that one more rounding, to 40 bits or fewer, is the
// only one.
MP_HD_INLINE constexpr double from_units(int64_t units, double unit) {
    const auto sign = static_cast<uint64_t>(units >> 63);
    const uint64_t magnitude = (static_cast<uint64_t>(units) ^ sign) - sign;
    const uint64_t low = magnitude & 0x7ffU;
    const uint64_t sticky = low != 0 ? 0x800U : 0U;
    const uint64_t kept = (magnitude >> 53) != 0 ? (magnitude - low) | sticky : magnitude;
    const double value = static_cast<double>(static_cast<int64_t>(kept)) * unit;
    return sign != 0 ? -value : value;
}

// Rounded to odd: what is cut off leaves its trace in the last bit (Boldo, Melquiond: "Emulation of a FMA and
// correctly rounded sums", 2008). A further rounding to fp16 or bf16 is then the only one.
MP_HD_INLINE constexpr float to_float_odd(double x) {
    const auto nearest = static_cast<float>(x);
    const auto back = static_cast<double>(nearest);
    const uint32_t bits = bits_from_float(nearest);
    const double a = back < 0.0 ? -back : back;
    const double b = x < 0.0 ? -x : x;
    const uint32_t cut = (a > b ? bits - 1U : bits) | 1U;
    return a == b || is_nan_bits(bits) ? nearest : float_from_bits(cut);
}

} // namespace mp::numerics
