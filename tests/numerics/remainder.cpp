// SPDX-License-Identifier: Apache-2.0
// A master weight as a bf16 parameter and a remainder: exact, nearest but for halves, and NaN stays one.
#include "numerics/remainder.hpp"

#include <gtest/gtest.h>

#include "numerics/bf16.hpp"

namespace mp::numerics {
namespace {

// All low halves under high halves of every kind: zero, subnormal, small, one, large, infinity's neighbour,
// both signs, odd and even.
TEST(Remainder, RoundTripsEveryLowHalf) {
    int64_t not_nearest_even = 0;
    int64_t checked = 0;
    for (uint32_t k = 0; k < 256; ++k) {
        const uint32_t high = k * 257U & 0xffffU; // all exponents, odd and even, both signs
        for (uint32_t low = 0; low < 65536; ++low) {
            const uint32_t bits = high << 16 | low;
            if (is_nan_bits(bits)) {
                continue;
            }
            ++checked;
            const SplitMaster split = split_master(float_from_bits(bits));
            ASSERT_EQ(bits_from_float(join_master(split.param, split.remainder)), bits);
            const bool is_nearest_even = split.param == float_to_bf16(float_from_bits(bits));
            // Ties above an even upper half go up here and down there.
            ASSERT_EQ(is_nearest_even, !(low == 0x8000U && high % 2 == 0)) << bits;
            not_nearest_even += is_nearest_even ? 0 : 1;
        }
    }
    EXPECT_GT(checked, 254 * 65536);
    EXPECT_GT(not_nearest_even, 100);
}

// 0x7fffffff rounded like a number is 0x8000, the weight -0.
TEST(Remainder, NanStaysNan) {
    for (const uint32_t bits : {0x7fffffffU, 0xffffffffU, 0x7f800001U, 0xff80ffffU, 0x7fc00000U}) {
        const SplitMaster split = split_master(float_from_bits(bits));
        EXPECT_EQ(split.param, 0x7fc0U | (bits >> 16 & 0x8000U));
        EXPECT_EQ(split.remainder, 0);
        EXPECT_TRUE(is_nan(join_master(split.param, split.remainder)));
    }
    EXPECT_EQ(split_master(float_from_bits(kFloatInfinity)).param, 0x7f80U);
}

} // namespace
} // namespace mp::numerics
