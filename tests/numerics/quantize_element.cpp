// SPDX-License-Identifier: Apache-2.0
// One element as a code: what saturates, what is shown, and the sixteen codes of E2M1.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "edges.hpp"
#include "numerics/quantize.hpp"
#include "numerics/scale_rules.hpp"

namespace mp::test {
namespace {

using namespace numerics;

TEST(QuantizeElement, SaturatesNumbersAndShowsTheRest) {
    using E4m3 = Codec<DType::fp8_e4m3>;
    using E5m2 = Codec<DType::fp8_e5m2>;
    EXPECT_EQ(quantize_element<E4m3>(449.0F, 1.0F), 0x7e);
    EXPECT_EQ(quantize_element<E4m3>(-1e30F, 1e30F), 0xfe); // the product overflows
    EXPECT_EQ(quantize_element<E4m3>(kInf, 1.0F), 0x7f);
    EXPECT_EQ(quantize_element<E4m3>(-kInf, 0.5F), 0xff);
    EXPECT_EQ(quantize_element<E4m3>(kNan, 1.0F), 0x7f);
    EXPECT_EQ(quantize_element<E4m3>(1.0F, kNan), 0x7f);
    EXPECT_EQ(quantize_element<E5m2>(1e30F, 1.0F), 0x7b);
    EXPECT_EQ(quantize_element<E5m2>(kInf, 1.0F), 0x7c);
    EXPECT_EQ(quantize_element<E5m2>(-kInf, 1.0F), 0xfc);
    EXPECT_EQ(quantize_element<E5m2>(kNan, 1.0F), 0x7e);
    EXPECT_EQ(quantize_element<Codec<DType::fp16>>(1e6F, 1.0F), 0x7bff);
    EXPECT_EQ(quantize_element<Codec<DType::fp16>>(kInf, 1.0F), 0x7c00);
    EXPECT_EQ(quantize_element<Codec<DType::fp4_e2m1>>(kInf, 1.0F), 0x7);
    EXPECT_EQ(quantize_element<Codec<DType::fp4_e2m1>>(-kInf, 1.0F), 0xf);
    for (const uint32_t r : {0U, 0xffffffffU}) {
        EXPECT_EQ((quantize_element_sr<DType::fp8_e4m3>(kInf, 1.0F, r)), 0x7f);
        EXPECT_EQ((quantize_element_sr<DType::fp8_e5m2>(-kInf, 1.0F, r)), 0xfc);
        EXPECT_EQ((quantize_element_sr<DType::fp16>(65519.0F, 1.0F, r)), 0x7bff);
        EXPECT_EQ((quantize_element_sr<DType::fp16>(1e30F, 1e30F, r)), 0x7bff);
        EXPECT_EQ((quantize_element_sr<DType::fp4_e2m1>(5.9F, 1.5F, r)), 0x7);
    }
}

// At the threshold a conversion that does not saturate leaves the finite codes; just below it not.
TEST(QuantizeElement, ThresholdIsWhereRoundingOverflows) {
    const auto is_beyond = [](DType dtype, float x) {
        unsigned char code[8] = {};
        store_from_float(dtype, code, 0, x, false);
        return !std::isfinite(load_as_float(dtype, code, 0));
    };
    for (const DType dtype : {DType::fp8_e4m3, DType::fp8_e5m2, DType::fp16}) {
        EXPECT_TRUE(is_beyond(dtype, saturation_threshold(dtype)));
        EXPECT_FALSE(is_beyond(dtype, before(saturation_threshold(dtype))));
    }
}

TEST(E2m1, HasSixteenCodes) {
    const float values[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    for (uint32_t code = 0; code < 8; ++code) {
        const auto positive = static_cast<uint8_t>(code);
        const auto negative = static_cast<uint8_t>(code | 8U);
        EXPECT_EQ(e2m1_to_float(positive), values[code]);
        EXPECT_EQ(e2m1_to_float(negative), -values[code]);
        EXPECT_EQ(std::signbit(e2m1_to_float(negative)), true);
        EXPECT_EQ(float_to_e2m1(values[code]), positive);
        EXPECT_EQ(float_to_e2m1(-values[code]), negative);
    }
    EXPECT_EQ(float_to_e2m1(kNan), 7);
    EXPECT_EQ(float_to_e2m1(-kNan), 7);
    EXPECT_EQ(float_to_e2m1(kInf), 7);
    EXPECT_EQ(float_to_e2m1(-kLargest), 15);
}

// The nearest of the eight values by distances in double, a tie to the even code.
TEST(E2m1, RoundsToNearestEven) {
    const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const auto nearest = [&](double x) {
        int best = 0;
        for (int i = 1; i < 8; ++i) {
            const double distance = std::abs(values[i] - x);
            const double least = std::abs(values[best] - x);
            best = distance < least || (distance == least && i % 2 == 0) ? i : best;
        }
        return best;
    };
    for (uint32_t bits = 0; bits < 0x4c000000U; bits += 4093) { // to 2^25, where double is exact
        const float x = std::bit_cast<float>(bits);
        ASSERT_EQ(float_to_e2m1(x), nearest(static_cast<double>(x))) << x;
    }
    for (const float tie : {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F}) {
        for (const float x : {before(tie), tie, after(tie)}) {
            EXPECT_EQ(float_to_e2m1(x), nearest(static_cast<double>(x))) << x;
        }
    }
}

// Between two values the upper one is taken for exactly that share of the random numbers.
TEST(E2m1, RoundsStochasticallyByTheDroppedFraction) {
    const float fractions[] = {0.125F, 0.5F, 0.8125F};
    const float values[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    for (uint32_t code = 0; code < 7; ++code) {
        for (const float fraction : fractions) {
            const float x = values[code] + fraction * (values[code + 1] - values[code]);
            const auto limit = static_cast<uint32_t>(static_cast<double>(fraction) * 0x1p32);
            EXPECT_EQ(float_to_e2m1_sr(x, 0U - limit), code + 1);
            EXPECT_EQ(float_to_e2m1_sr(x, 0U - limit - 1U), code);
            EXPECT_EQ(float_to_e2m1_sr(x, 0xffffffffU), code + 1);
            EXPECT_EQ(float_to_e2m1_sr(x, 0), code);
        }
    }
}

} // namespace
} // namespace mp::test
