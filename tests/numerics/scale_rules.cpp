// SPDX-License-Identifier: Apache-2.0
// The scale rules against golden values of the systems they come from, and what no rule may give.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "edges.hpp"
#include "numerics/quantize.hpp"
#include "numerics/scale_rules.hpp"

namespace mp::test {
namespace {

using namespace numerics;

ScalePolicy policy_of(ScaleRule rule, DType codes = DType::fp8_e4m3, bool power_of_two = false) {
    ScalePolicy policy = scale_policy(rule, codes);
    policy.power_of_two = power_of_two;
    return policy;
}

float multiply(const ScalePolicy& policy, float amax, float previous_inv = 1.0F) {
    return block_scale(policy, amax, previous_inv, amax).multiply;
}
float scale_inv(const ScalePolicy& policy, float amax, float previous_inv = 1.0F) {
    return block_scale(policy, amax, previous_inv, amax).scale_inv;
}

TEST(ScaleRules, PolicyFollowsTheCodes) {
    EXPECT_EQ(scale_policy(ScaleRule::current, DType::fp8_e4m3).max_code, 448.0F);
    EXPECT_EQ(scale_policy(ScaleRule::current, DType::fp8_e4m3, 2).max_code, 112.0F);
    EXPECT_EQ(scale_policy(ScaleRule::current, DType::fp8_e5m2, -1).max_code, 114688.0F);
    EXPECT_EQ(scale_policy(ScaleRule::msamp, DType::fp16).max_code, 65504.0F);
    EXPECT_EQ(scale_policy(ScaleRule::nvfp4, DType::fp4_e2m1).max_code, 6.0F);
}

// Transformer Engine, current scaling of E4M3: amax, scale, power-of-two scale.
TEST(ScaleRules, CurrentGivesTransformerEnginesValues) {
    const ScalePolicy plain = policy_of(ScaleRule::current);
    const ScalePolicy pow2 = policy_of(ScaleRule::current, DType::fp8_e4m3, true);
    struct Row {
        float amax, scale, pow2;
    };
    for (const Row& row :
         {Row{1.0F, 448.0F, 256.0F},
          {1.75F, 256.0F, 256.0F},
          {after(1.75F), before(256.0F), 128.0F},
          {3.0F, std::bit_cast<float>(0x43155555U), 128.0F},
          {448.0F, 1.0F, 1.0F},
          {0.0F, 1.0F, 1.0F},
          {kInf, 1.0F, 1.0F},
          {kNan, 1.0F, 1.0F},
          {1e-37F, std::bit_cast<float>(0x7F7FFFFFU), 0x1p127F},
          {kLargest, std::bit_cast<float>(0x03E00001U), std::bit_cast<float>(0x03800000U)}}) {
        EXPECT_EQ(multiply(plain, row.amax), row.scale) << row.amax;
        EXPECT_EQ(multiply(pow2, row.amax), row.pow2) << row.amax;
        EXPECT_EQ(scale_inv(plain, row.amax), 1.0F / row.scale) << row.amax;
    }
    EXPECT_EQ(scale_inv(pow2, 1e-37F), std::bit_cast<float>(0x00400000U)); // subnormal
    EXPECT_NEAR(multiply(plain, after(1.75F)), 255.99998F, 1e-5F);
}

TEST(ScaleRules, CurrentHasAnEpsilonAndALimit) {
    ScalePolicy plain = policy_of(ScaleRule::current);
    ScalePolicy pow2 = policy_of(ScaleRule::current, DType::fp8_e4m3, true);
    plain.epsilon = pow2.epsilon = 1e-6F;
    EXPECT_EQ(multiply(plain, 0.0F), 4.48e8F);
    EXPECT_EQ(multiply(pow2, 0.0F), 0x1p28F);
    EXPECT_EQ(multiply(plain, kNan), 1.0F);
    EXPECT_EQ(multiply(plain, 2.0F), 224.0F);
    // Blocks of a bf16 tensor: bf16's largest number.
    ScalePolicy limited = policy_of(ScaleRule::current);
    limited.largest_multiply = 0x1.fep+127F;
    EXPECT_EQ(multiply(limited, 1e-37F), 3.3895314e38F);
    EXPECT_EQ(multiply(limited, 1.0F), 448.0F);
    limited.power_of_two = true;
    EXPECT_EQ(multiply(limited, 1e-37F), 0x1p127F);
}

// torchao: tensorwise and rowwise scales of E4M3, and rounded down to powers of two.
TEST(ScaleRules, Float64GivesTorchaosValues) {
    const ScalePolicy plain = policy_of(ScaleRule::float64);
    const ScalePolicy pow2 = policy_of(ScaleRule::float64, DType::fp8_e4m3, true);
    struct Row {
        float amax, scale, pow2;
    };
    for (const Row& row : {Row{0.0F, 4.48e14F, 0x1p48F},
                           {1e-13F, 4.48e14F, 0x1p48F},
                           {1.0F, 448.0F, 256.0F},
                           {3.0F, 149.33333F, 128.0F},
                           {0.1F, 4480.0F, 4096.0F},
                           {448.0F, 1.0F, 1.0F},
                           {1000.0F, 0.448F, 0.25F}}) {
        EXPECT_EQ(multiply(plain, row.amax), row.scale) << row.amax;
        EXPECT_EQ(multiply(pow2, row.amax), row.pow2) << row.amax;
    }
    // By its helper for powers of two: the nearest number below 1 gives 0.5, the next above 1.
    EXPECT_EQ(multiply(pow2, after(448.0F)), 0.5F);
    EXPECT_EQ(multiply(pow2, before(448.0F)), 1.0F);
    // Its own scale would be 0 and NaN.
    EXPECT_EQ(multiply(plain, kInf), 1.0F);
    EXPECT_EQ(multiply(plain, kNan), 1.0F);
}

TEST(ScaleRules, Float64BytesOfFourNumbers) {
    const float x[] = {1.0F, -0.3F, 0.007F, 2.5F};
    const uint8_t plain[] = {0x73, 0xE5, 0x3A, 0x7E};
    const uint8_t pow2[] = {0x70, 0xE2, 0x36, 0x7A};
    const float by = multiply(policy_of(ScaleRule::float64), 2.5F);
    const float by_pow2 = multiply(policy_of(ScaleRule::float64, DType::fp8_e4m3, true), 2.5F);
    EXPECT_EQ(by, 179.2F);
    EXPECT_EQ(by_pow2, 128.0F);
    for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(quantize_element<Codec<DType::fp8_e4m3>>(x[i], by), plain[i]);
        EXPECT_EQ(quantize_element<Codec<DType::fp8_e4m3>>(x[i], by_pow2), pow2[i]);
    }
}

TEST(ScaleRules, MsampGivesItsPowersOfTwo) {
    const ScalePolicy e4m3 = policy_of(ScaleRule::msamp);
    for (const auto& [amax, scale] : std::vector<std::pair<float, float>>{{1.0F, 256.0F},
                                                                          {10.0F, 32.0F},
                                                                          {56.0F, 8.0F},
                                                                          {448.0F, 1.0F},
                                                                          {449.0F, 0.5F},
                                                                          {10000.0F, 0.03125F}}) {
        EXPECT_EQ(multiply(e4m3, amax), scale) << amax;
        EXPECT_EQ(scale_inv(e4m3, amax), 1.0F / scale) << amax;
    }
    EXPECT_EQ(multiply(policy_of(ScaleRule::msamp, DType::fp8_e5m2), 1.0F), 32768.0F);
    EXPECT_EQ(multiply(policy_of(ScaleRule::msamp, DType::fp8_e5m2), 60000.0F), 0.5F);
    EXPECT_EQ(multiply(policy_of(ScaleRule::msamp, DType::fp16), 1.0F), 32768.0F);
    EXPECT_EQ(multiply(policy_of(ScaleRule::msamp, DType::fp16), 0.02F), 0x1p21F);
    // The margin is a power of two off.
    EXPECT_EQ(multiply(scale_policy(ScaleRule::msamp, DType::fp8_e4m3, 3), 1.0F), 32.0F);
}

// Zero keeps the scale, and so do infinity and NaN (MS-AMP itself inverts it at infinity). Its scale
// is infinite for a tiny amax; here the exponent ends at 126.
TEST(ScaleRules, MsampKeepsTheScaleAndStaysFinite) {
    const ScalePolicy e4m3 = policy_of(ScaleRule::msamp);
    for (const float amax : {0.0F, kInf, kNan}) {
        EXPECT_EQ(multiply(e4m3, amax, 0.125F), 8.0F);
        EXPECT_EQ(scale_inv(e4m3, amax, 0.125F), 0.125F);
        // What no scale can be counts as none.
        for (const float previous : {0.0F, -1.0F, kInf, kNan, kSubnormal}) {
            EXPECT_EQ(multiply(e4m3, amax, previous), 1.0F) << previous;
        }
    }
    EXPECT_EQ(multiply(e4m3, 1e-38F), 0x1p126F);
    EXPECT_EQ(multiply(e4m3, kSubnormal), 0x1p126F);
    EXPECT_EQ(multiply(policy_of(ScaleRule::msamp, DType::fp16), 1e-35F), 0x1p126F);
    EXPECT_EQ(multiply(e4m3, kLargest), 0x1p-120F);
    EXPECT_EQ(multiply(scale_policy(ScaleRule::msamp, DType::fp8_e4m3, 20), kLargest), 0x1p-126F);
}

// scale * amax <= max_code < 2 * scale * amax, in double, around every border.
TEST(ScaleRules, MsampIsTheLargestPowerOfTwo) {
    for (const DType codes : {DType::fp8_e4m3, DType::fp8_e5m2, DType::fp16}) {
        const ScalePolicy policy = policy_of(ScaleRule::msamp, codes);
        const double limit = static_cast<double>(policy.max_code);
        for (int e = -80; e < 100; ++e) {
            const float border = std::ldexp(policy.max_code, e);
            for (const float amax : {before(before(border)), before(border), border, after(border),
                                     std::ldexp(1.0F, e), std::ldexp(1.37F, e)}) {
                const double scaled =
                    static_cast<double>(multiply(policy, amax)) * static_cast<double>(amax);
                EXPECT_LE(scaled, limit) << amax;
                EXPECT_GT(2.0 * scaled, limit) << amax;
            }
        }
    }
}

TEST(ScaleRules, DeepseekStoresTheDequantizationFactor) {
    const ScalePolicy plain = policy_of(ScaleRule::deepseek);
    const ScalePolicy ue8m0 = policy_of(ScaleRule::deepseek, DType::fp8_e4m3, true);
    EXPECT_EQ(scale_inv(plain, 0.0F), 1e-4F / 448.0F);
    EXPECT_NEAR(scale_inv(plain, 0.0F), 2.232e-7F, 1e-10F);
    EXPECT_EQ(scale_inv(plain, 448.0F), 1.0F);
    EXPECT_NEAR(scale_inv(plain, 449.0F), 1.00223F, 1e-5F);
    EXPECT_NEAR(scale_inv(plain, 1.0F), 0.00223214F, 1e-8F);
    EXPECT_EQ(multiply(plain, 3.0F), 1.0F / (3.0F / 448.0F));
    EXPECT_EQ(scale_inv(ue8m0, 0.0F), 0x1p-22F);
    EXPECT_EQ(scale_inv(ue8m0, 448.0F), 1.0F);
    EXPECT_EQ(scale_inv(ue8m0, after(448.0F)), 2.0F);
    EXPECT_EQ(scale_inv(ue8m0, 449.0F), 2.0F);
    EXPECT_EQ(scale_inv(ue8m0, 1.0F), 0x1p-8F);
    EXPECT_EQ(scale_inv(ue8m0, 7.0F), 0x1p-6F);
    for (const float amax : {kInf, kNan}) {
        EXPECT_EQ(scale_inv(plain, amax), 1.0F);
        EXPECT_EQ(scale_inv(ue8m0, amax), 1.0F);
    }
}

int mx_byte(ScaleRule rule, float amax, DType codes = DType::fp8_e4m3) {
    return detail::mx_code(policy_of(rule, codes), amax);
}

TEST(ScaleRules, MxRceilGivesTransformerEnginesBytes) {
    struct Row {
        float amax;
        int code;
    };
    for (const Row& row : {Row{448.0F, 127},
                           {after(448.0F), 128},
                           {224.0F, 126},
                           {1.0F, 119},
                           {1.5F, 119},
                           {1.75F, 119},
                           {after(1.75F), 120},
                           {2.0F, 120},
                           {0.0F, 0},
                           {kInf, 254},
                           {kNan, 255},
                           {kLargest, 247},
                           {0x1p-126F, 0},
                           {0x1.cp-118F, 1},
                           {0x1.cp-119F, 0},
                           {kSubnormal, 0},
                           {500.0F, 128},
                           {0.9F, 119}}) {
        EXPECT_EQ(mx_byte(ScaleRule::mx_rceil, row.amax), row.code) << row.amax;
    }
    for (const Row& row : {Row{57344.0F, 127}, {1.0F, 112}, {1.75F, 112}, {2.0F, 113}}) {
        EXPECT_EQ(mx_byte(ScaleRule::mx_rceil, row.amax, DType::fp8_e5m2), row.code) << row.amax;
    }
}

TEST(ScaleRules, MxFloorCeilAndEven) {
    EXPECT_EQ(mx_byte(ScaleRule::mx_floor, 500.0F), 127); // and 500 saturates
    EXPECT_EQ(mx_byte(ScaleRule::mx_floor, 0.9F), 127 - 9);
    EXPECT_EQ(mx_byte(ScaleRule::mx_floor, 448.0F), 127);
    EXPECT_EQ(mx_byte(ScaleRule::mx_ceil, 256.0F), 127);
    EXPECT_EQ(mx_byte(ScaleRule::mx_ceil, after(256.0F)), 128);
    // 1.9375 is half way from E4M3's 1.875 to 2, and halves go up.
    EXPECT_EQ(mx_byte(ScaleRule::mx_even, 1.9375F), 127 - 7);
    EXPECT_EQ(mx_byte(ScaleRule::mx_even, before(1.9375F)), 127 - 8);
    EXPECT_EQ(mx_byte(ScaleRule::mx_even, 1.875F, DType::fp8_e5m2), 127 - 14);
    EXPECT_EQ(mx_byte(ScaleRule::mx_even, before(1.875F), DType::fp8_e5m2), 127 - 15);
    EXPECT_EQ(mx_byte(ScaleRule::mx_even, kLargest), 247);
    for (const ScaleRule rule : {ScaleRule::mx_floor, ScaleRule::mx_ceil, ScaleRule::mx_even}) {
        EXPECT_EQ(mx_byte(rule, 0.0F), 0);
        EXPECT_EQ(mx_byte(rule, kSubnormal), 0);
        EXPECT_EQ(mx_byte(rule, kInf), 255);
        EXPECT_EQ(mx_byte(rule, kNan), 255);
    }
}

// scale_inv is the byte's value and multiply its reciprocal, also where one of them is subnormal.
TEST(ScaleRules, MxMultipliesByThePowerOfTwo) {
    const ScalePolicy policy = policy_of(ScaleRule::mx_rceil);
    EXPECT_EQ(multiply(policy, 448.0F), 1.0F);
    EXPECT_EQ(multiply(policy, 2.0F), 128.0F);
    EXPECT_EQ(multiply(policy, 0.0F), 0x1p127F);
    EXPECT_EQ(scale_inv(policy, 0.0F), 0x1p-127F);
    EXPECT_EQ(multiply(policy, kInf), 0x1p-127F);
    EXPECT_EQ(scale_inv(policy, kInf), 0x1p127F);
    EXPECT_TRUE(std::isnan(multiply(policy, kNan)));
    EXPECT_TRUE(std::isnan(scale_inv(policy, kNan)));
}

// The exponent is the smallest with max_code * 2^e >= amax: in double, which holds all of it.
TEST(ScaleRules, MxRceilNeverSaturates) {
    for (const DType codes : {DType::fp8_e4m3, DType::fp8_e5m2, DType::fp4_e2m1}) {
        const auto limit = static_cast<double>(max_finite(codes));
        for (uint32_t bits = 0x00800000U; bits < 0x7f800000U; bits += 65537) {
            const float amax = std::bit_cast<float>(bits);
            const int code = mx_byte(ScaleRule::mx_rceil, amax, codes);
            const auto wide = static_cast<double>(amax);
            ASSERT_GE(std::ldexp(limit, code - 127), wide) << amax;
            ASSERT_TRUE(code == 0 || std::ldexp(limit, code - 128) < wide) << amax;
        }
    }
}

// Transformer Engine's example, amax of the tensor 10: scale, codes, decoded values.
TEST(ScaleRules, Nvfp4GivesTransformerEnginesBlocks) {
    const ScalePolicy policy = policy_of(ScaleRule::nvfp4, DType::fp4_e2m1);
    struct Block {
        float x[4];
        float scale, multiply;
        float code[4];
        float decoded[4];
    };
    const Block blocks[] = {
        {{3, 1, -.5F, .1F}, 128, 2.1F, {6, 2, -1, 0}, {2.857F, .952F, -.476F, 0}},
        {{10, 5, .3F, -7}, 448, .6F, {6, 3, 0, -4}, {10, 5, 0, -6.667F}}};
    for (const Block& block : blocks) {
        const BlockScale scale = block_scale(policy, block.x[0], 0.0F, 10.0F);
        EXPECT_EQ(scale.scale_inv, block.scale);
        EXPECT_NEAR(scale.multiply, block.multiply, 1e-6F);
        for (int i = 0; i < 4; ++i) {
            const float code =
                e2m1_to_float(quantize_element<Codec<DType::fp4_e2m1>>(block.x[i], scale.multiply));
            EXPECT_EQ(code, block.code[i]);
            EXPECT_NEAR(code * (scale.scale_inv * nvfp4_decode(10.0F)), block.decoded[i], 1e-3F);
        }
    }
    EXPECT_EQ(block_scale(policy, 0.0F, 0.0F, 10.0F).scale_inv, 0.0F);
    EXPECT_EQ(quantize_element<Codec<DType::fp4_e2m1>>(
                  0.0F, block_scale(policy, 0.0F, 0.0F, 10.0F).multiply),
              0);
    EXPECT_EQ(block_scale(policy, 0.0F, 0.0F, 0.0F).scale_inv, 0.0F);
    for (const float amax : {kInf, kNan}) { // E2M1 cannot show it, so the scale does
        EXPECT_TRUE(std::isnan(block_scale(policy, amax, 0.0F, amax).scale_inv));
        EXPECT_EQ(block_scale(policy, 1.0F, 0.0F, amax).scale_inv, 0.171875F);
    }
}

// No rule gives a scale that is zero, negative or infinite, and the largest element fits where the
// scale was not limited. MX and NVFP4 say NaN for what is not a number.
TEST(ScaleRules, NoneGivesAnUnusableScale) {
    for (int32_t number = 0; number <= static_cast<int32_t>(ScaleRule::mx_even); ++number) {
        for (const bool power_of_two : {false, true}) {
            for (const int32_t margin : {0, 1, 10, -3}) {
                ScalePolicy policy =
                    scale_policy(static_cast<ScaleRule>(number), DType::fp8_e4m3, margin);
                policy.power_of_two = power_of_two;
                for (uint64_t u = 0; u <= 0x7f800000U; u += u < 0x01000000U ? 4099 : 1048573) {
                    const float amax = std::bit_cast<float>(static_cast<uint32_t>(u));
                    const BlockScale scale = block_scale(policy, amax, 1.0F, amax);
                    ASSERT_TRUE(std::isfinite(scale.multiply) && scale.multiply > 0)
                        << number << ' ' << amax;
                    ASSERT_TRUE(std::isfinite(scale.scale_inv) && scale.scale_inv > 0)
                        << number << ' ' << amax;
                }
            }
        }
    }
}

TEST(ScaleRules, PowersOfTwoAreRoundedDown) {
    for (const ScaleRule rule : {ScaleRule::current, ScaleRule::float64}) {
        for (uint32_t bits = 0x2f800000U; bits < 0x70000000U; bits += 99991) {
            const float amax = std::bit_cast<float>(bits);
            const float plain = multiply(policy_of(rule), amax);
            const float pow2 = multiply(policy_of(rule, DType::fp8_e4m3, true), amax);
            ASSERT_TRUE(pow2 <= plain && 2.0F * pow2 > plain);
            ASSERT_EQ(std::bit_cast<uint32_t>(pow2) & 0x007fffffU, 0U);
            ASSERT_LE(static_cast<double>(pow2) * static_cast<double>(amax), 448.0 + 1e-4);
        }
    }
}

} // namespace
} // namespace mp::test
