// SPDX-License-Identifier: Apache-2.0
// fp32 to integer, round to nearest even, saturating: independent of the rounding mode and defined
// for every input, which the C++ cast and the rint family are not.
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"

namespace mp::numerics {

// The nearest integral value, ties to even, for |x| < 2^31; exact steps only.
MP_HD_INLINE constexpr int32_t round_to_int32(float x) {
    const int32_t whole = static_cast<int32_t>(x);
    const float fraction = x - static_cast<float>(whole); // exact, in (-1, 1)
    const uint32_t u = bits_from_float(fraction);
    const uint32_t odd = static_cast<uint32_t>(whole) & 1u;
    const bool away = (u & kFloatMagnitudeMask) + odd > 0x3f000000u;
    return whole + (away ? ((u & kFloatSignMask) != 0u ? -1 : 1) : 0);
}

// Values outside the type's range, infinities included, become its nearest limit; NaN becomes 0.
template <class Int> MP_HD_INLINE constexpr Int float_to_int_sat(float x) {
    // Not std::numeric_limits: its functions are host functions.
    constexpr bool kSigned = static_cast<Int>(-1) < static_cast<Int>(0);
    constexpr int kDigits = static_cast<int>(sizeof(Int)) * 8 - (kSigned ? 1 : 0);
    constexpr Int kMax = static_cast<Int>((uint64_t{1} << kDigits) - 1u);
    constexpr Int kMin = kSigned ? static_cast<Int>(-kMax - 1) : Int{0};
    // max + 1, a power of two and so exact in fp32 where max itself is not.
    constexpr float kAbove = 2.0f * static_cast<float>(uint64_t{1} << (kDigits - 1));
    if (is_nan(x)) {
        return 0;
    }
    if (x >= kAbove) {
        return kMax;
    }
    if (x <= (kSigned ? -kAbove : 0.0f)) {
        return kMin;
    }
    if (!(x > -0x1p24f && x < 0x1p24f)) {
        return static_cast<Int>(x); // integral already
    }
    const int32_t rounded = round_to_int32(x);
    if constexpr (sizeof(Int) < sizeof(int32_t)) {
        // 127.5 is below max + 1 but rounds to it.
        return static_cast<Int>(rounded > int32_t{kMax} ? int32_t{kMax} : rounded);
    } else {
        return static_cast<Int>(rounded);
    }
}

} // namespace mp::numerics
