// SPDX-License-Identifier: Apache-2.0
// MS-AMP's scale of a tensor: the golden values, the defining inequality for every exponent, and the
// two repairs.
#include "numerics/msamp_scale.hpp"

#include <gtest/gtest.h>

#include "numerics/fp16.hpp"
#include "numerics/fp8.hpp"

namespace mp::numerics {
namespace {

constexpr float kInfinity = __builtin_inff();
constexpr float kNan = __builtin_nanf("");

TEST(MsampScale, GoldenValues) {
    const auto e4m3 = [](float amax) { return msamp_multiply(amax, kE4m3Max, 16.0F); };
    EXPECT_EQ(e4m3(1.0F), 256.0F);
    EXPECT_EQ(e4m3(10.0F), 32.0F);
    EXPECT_EQ(e4m3(56.0F), 8.0F);
    EXPECT_EQ(e4m3(448.0F), 1.0F);
    EXPECT_EQ(e4m3(449.0F), 0.5F);
    EXPECT_EQ(e4m3(10000.0F), 0x1p-5F);
    EXPECT_EQ(msamp_multiply(1.0F, kE5m2Max, 16.0F), 32768.0F);
    EXPECT_EQ(msamp_multiply(60000.0F, kE5m2Max, 16.0F), 0.5F);
    EXPECT_EQ(msamp_multiply(1.0F, kFp16Max, 16.0F), 32768.0F);
    EXPECT_EQ(msamp_multiply(0.02F, kFp16Max, 16.0F), 0x1p21F);
}

TEST(MsampScale, KeepsThePreviousScaleWhereTheAmaxSaysNothing) {
    for (const float amax : {0.0F, -0.0F, kInfinity, kNan}) {
        EXPECT_EQ(msamp_multiply(amax, kE4m3Max, 16.0F), 16.0F);
        const BlockScale kept = msamp_block_scale(amax, kE4m3Max, 0.25F);
        EXPECT_EQ(kept.multiply, 4.0F);
        EXPECT_EQ(kept.scale_inv, 0.25F);
    }
}

// The largest power of two with amax * multiply <= max_code, for numbers around every power of two.
TEST(MsampScale, IsTheLargestPowerOfTwoThatFits) {
    for (const float max_code : {kE4m3Max, kE5m2Max, kFp16Max}) {
        for (int32_t exponent = -149; exponent <= 127; ++exponent) {
            for (const double factor : {1.0, 1.5, 1.75, 0x1.ffep0, 0x1.c00002p0, 0x1.fffffep0}) {
                const auto amax = static_cast<float>(__builtin_ldexp(factor, exponent));
                const BlockScale scale = msamp_block_scale(amax, max_code, 1.0F);
                const double fits = static_cast<double>(amax) * static_cast<double>(scale.multiply);
                EXPECT_LE(fits, static_cast<double>(max_code)) << amax;
                if (scale.multiply != 0x1p126F) {
                    EXPECT_GT(2.0 * fits, static_cast<double>(max_code)) << amax;
                }
                EXPECT_EQ(scale.multiply * scale.scale_inv, 1.0F);
                EXPECT_EQ(bits_from_float(scale.multiply) & 0x007fffffU, 0U);
                EXPECT_GE(scale.scale_inv, 0x1p-126F); // normal, and so is its inverse
            }
        }
    }
}

} // namespace
} // namespace mp::numerics
