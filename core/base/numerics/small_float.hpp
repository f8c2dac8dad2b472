// SPDX-License-Identifier: Apache-2.0
// The rounding shared by fp16, E4M3 and E5M2: fp32 magnitude to code and back, without sign, NaN or
// overflow, which the format headers add. Branch-free and without a per-lane shift count, so that a
// plain loop over it vectorizes on every instruction set.
//
// Subnormal targets go through fp32 arithmetic, but only through operations whose result is exact
// (scaling by a power of two, truncating to integer, taking the fraction), so the rounding mode,
// flush-to-zero and denormals-are-zero settings of the caller cannot change a bit of the answer.
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"

namespace mp::numerics {

// A binary format with kMantissaBits stored mantissa bits and subnormals, whose smallest normal
// number is 2^kMinExponent. fp16: <10, -14>; E4M3: <3, -6>; E5M2: <2, -14>.
template <int kMantissaBits, int kMinExponent> struct SmallFloat {
    static constexpr int kDrop = 23 - kMantissaBits;
    // fp32 pattern of the smallest normal number of the format.
    static constexpr uint32_t kMinNormal = static_cast<uint32_t>(127 + kMinExponent) << 23;
    // Difference of the exponent biases, in units of the code.
    static constexpr uint32_t kRebias = static_cast<uint32_t>(126 + kMinExponent) << kMantissaBits;
    static constexpr int kUlpExponent = kMinExponent - kMantissaBits;

    // The encoders take an fp32 pattern without sign, at most that of 2^16: the caller has applied
    // its overflow rule already. They first bring it to the code with kDrop fraction bits. For a
    // normal target these are the bits of the pattern itself; below that, the value in fixed point.

    // Round to nearest, ties to even.
    MP_HD_INLINE static constexpr uint32_t encode_rne(uint32_t magnitude) {
        // The fixed point loses low bits of the pattern, at the smallest value that can be a tie
        // kMantissaBits + 1 of them, and one sticky bit stands in for these. Where they are set but
        // were not lost, the value is no tie either, and setting the lowest of several fraction
        // bits does not move it across one.
        const uint32_t sticky = min_u32(magnitude & ((1u << (kMantissaBits + 1)) - 1u), 1u);
        const uint32_t tiny = static_cast<uint32_t>(static_cast<int32_t>(scale_tiny(magnitude)));
        const uint32_t fixed =
            select_u32(magnitude < kMinNormal, tiny | sticky, magnitude - (kRebias << kDrop));
        const uint32_t odd = (fixed >> kDrop) & 1u;
        return (fixed + ((1u << (kDrop - 1)) - 1u) + odd) >> kDrop;
    }

    // Stochastic: adds r32 / 2^32 of an ulp and truncates, so the probability of rounding away from
    // zero is the dropped fraction, exactly where it has at most 32 bits and else rounded to the
    // nearest multiple of 2^-32 (ties up), which is the centred choice and has no bias beyond that.
    MP_HD_INLINE static constexpr uint32_t encode_sr(uint32_t magnitude, uint32_t r32) {
        constexpr int kMore = 32 - kDrop; // bits of the fraction below the fixed point
        const float scaled = scale_tiny(magnitude);
        const int32_t tiny = static_cast<int32_t>(scaled);
        const float rest = scaled - static_cast<float>(tiny); // exact, in [0, 1)
        const uint32_t low =
            (static_cast<uint32_t>(static_cast<int32_t>(rest * exp2_int(kMore + 1))) + 1u) >> 1;
        const bool is_tiny = magnitude < kMinNormal;
        const uint32_t fixed =
            select_u32(is_tiny, static_cast<uint32_t>(tiny), magnitude - (kRebias << kDrop));
        // No overflow: a fraction with all upper bits set has none left to round in `low`.
        const uint32_t fraction = (fixed << kMore) + select_u32(is_tiny, low, 0u);
        return (fixed >> kDrop) + (static_cast<uint32_t>(fraction + r32) < fraction ? 1u : 0u);
    }

    // Code without sign, no infinity or NaN, to the fp32 pattern.
    MP_HD_INLINE static constexpr uint32_t decode(uint32_t code) {
        const uint32_t normal = (code + kRebias) << kDrop;
        // Exact: a code is far below 2^24, and the product is a normal fp32 number.
        const float tiny = static_cast<float>(static_cast<int32_t>(code)) * exp2_int(kUlpExponent);
        return select_u32(code < (1u << kMantissaBits), bits_from_float(tiny), normal);
    }

  private:
    // The value in units of the smallest subnormal / 2^kDrop: at most 2^23 by the clamp, which
    // keeps the lanes that are not tiny inside the range of the integer conversion.
    MP_HD_INLINE static constexpr float scale_tiny(uint32_t magnitude) {
        return float_from_bits(min_u32(magnitude, kMinNormal)) * exp2_int(kDrop - kUlpExponent);
    }
};

} // namespace mp::numerics
