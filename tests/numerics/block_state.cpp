// SPDX-License-Identifier: Apache-2.0
// The code maps of moments in blocks: their known ends, and codes against a search by brute force.
#include "numerics/block_state.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "numerics/philox.hpp"

namespace mp::numerics {
namespace {

template <int kCount> int32_t zero_index(const DynamicMap<kCount>& map) {
    return static_cast<int32_t>(std::find(map.value, map.value + kCount, 0.0F) - map.value);
}

TEST(DynamicMap, HasTheKnownEnds) {
    EXPECT_FLOAT_EQ(kSigned8Map.value[0], -0.99296875F); // there is no -1
    EXPECT_EQ(kSigned8Map.value[255], 1.0F);
    EXPECT_EQ(zero_index(kSigned8Map), 127);
    EXPECT_FLOAT_EQ(kSigned8Map.value[128], 5.5e-7F);
    EXPECT_FLOAT_EQ(kSigned8Map.value[129], 3.25e-6F);
    EXPECT_EQ(kUnsigned8Map.value[0], 0.0F);
    EXPECT_FLOAT_EQ(kUnsigned8Map.value[1], 3.25e-7F);
    EXPECT_FLOAT_EQ(kUnsigned8Map.value[2], 7.75e-7F);
    EXPECT_FLOAT_EQ(kUnsigned8Map.value[254], 0.99648434F);
    EXPECT_EQ(kUnsigned8Map.value[255], 1.0F);
    EXPECT_EQ(zero_index(kSigned4Map), 7);
    EXPECT_EQ(kSigned4Map.value[15], 1.0F);
    EXPECT_FLOAT_EQ(kSigned4Map.value[0], -0.8875F);
    EXPECT_FLOAT_EQ(kSigned4Map.value[8], 0.0055F);
    EXPECT_EQ(kLinear4Map.value[0], 0.0625F); // there is no 0
    EXPECT_EQ(kLinear4Map.value[15], 1.0F);
}

// torchao's own steps: the largest value not above x, then the next if x is at least half way to it.
template <int kCount> int32_t by_rule(const DynamicMap<kCount>& map, float x) {
    int32_t code = 0;
    while (code + 1 < kCount && x >= map.value[code + 1]) {
        ++code;
    }
    const int32_t up = std::min(code + 1, kCount - 1);
    return x - map.value[code] >= (map.value[up] - map.value[code]) * 0.5F ? up : code;
}

template <int kCount> void expect_nearest(const DynamicMap<kCount>& map, bool is_signed) {
    for (uint64_t i = 0; i < 32768; ++i) {
        const uint64_t h = splitmix64(i);
        const auto unit = static_cast<float>(h >> 40) * 0x1p-24F; // [0, 1)
        float x = unit * exp2_int(-static_cast<int32_t>((h >> 32) % 26U));
        x = is_signed && (h & 1U) != 0 ? -x : x;
        const int32_t code = nearest_code(map, x);
        ASSERT_EQ(code, by_rule(map, x)) << x;
        double best = 2.0;
        for (const float value : map.value) {
            best = std::min(best, std::fabs(static_cast<double>(value) - static_cast<double>(x)));
        }
        const double here =
            std::fabs(static_cast<double>(map.value[code]) - static_cast<double>(x));
        ASSERT_LE(here, best * (1.0 + 1e-6) + 1e-14) << x;
    }
    for (int32_t code = 0; code < kCount; ++code) {
        EXPECT_EQ(nearest_code(map, map.value[code]), code);
    }
    EXPECT_EQ(nearest_code(map, 2.0F), kCount - 1);
    EXPECT_EQ(nearest_code(map, -2.0F), 0);
    EXPECT_EQ(nearest_code(map, float_from_bits(kFloatQuietNan)), 0);
}

TEST(DynamicMap, CodesAreTheNearestValues) {
    expect_nearest(kSigned8Map, true);
    expect_nearest(kUnsigned8Map, false);
    expect_nearest(kSigned4Map, true);
    expect_nearest(kLinear4Map, false);
}

// Around every threshold, in every bucket of the table, and outside of them.
template <bool kSigned> void expect_table(const DynamicMap<256>& map, const CodeTable& table) {
    const auto same = [&](float x) {
        if (std::fabs(x) <= 1.0F && (kSigned || x >= 0.0F)) {
            ASSERT_EQ(nearest_code_by_table<kSigned>(table, x), nearest_code(map, x)) << x;
        }
    };
    for (uint32_t u = 0; u <= 0x3f800000U; u += 509U) {
        same(float_from_bits(u));
        same(-float_from_bits(u));
    }
    for (const float threshold : map.threshold) {
        const uint32_t u = bits_from_float(threshold);
        for (const uint32_t near : {u - 1U, u, u + 1U}) {
            same(float_from_bits(near));
        }
    }
    EXPECT_EQ(nearest_code_by_table<kSigned>(table, float_from_bits(kFloatQuietNan)), 0);
    EXPECT_EQ(nearest_code_by_table<kSigned>(table, 1.0F), 255);
}

TEST(DynamicMap, TheTableGivesTheSameCodes) {
    expect_table<true>(kSigned8Map, kSigned8Table);
    expect_table<false>(kUnsigned8Map, kUnsigned8Table);
}

// The largest relative error of the four largest decades, in percent.
TEST(DynamicMap, ErrorsAreThoseOfTheirDecade) {
    const auto worst = [](const DynamicMap<256>& map, double from, double to) {
        double error = 0.0;
        for (double x = from; x < to; x *= 1.0001) {
            const auto value =
                static_cast<double>(map.value[nearest_code(map, static_cast<float>(x))]);
            error = std::max(error, std::fabs(value - x) / x);
        }
        return 100.0 * error;
    };
    EXPECT_NEAR(worst(kSigned8Map, 0.1, 1.0), 6.2, 1.0);
    EXPECT_NEAR(worst(kUnsigned8Map, 0.1, 1.0), 3.3, 0.3);
    EXPECT_NEAR(worst(kUnsigned8Map, 0.01, 0.1), 6.1, 0.5);
    EXPECT_NEAR(worst(kUnsigned8Map, 1e-3, 1e-2), 11.0, 1.0);
    EXPECT_NEAR(worst(kSigned8Map, 1e-3, 1e-2), 18.0, 1.5);
}

TEST(BlockState, ASecondMomentThatIsNotZeroHasNoCodeOfZero) {
    for (const float v : {0x1p-149F, 1e-30F, 1e-8F}) {
        EXPECT_EQ(BlockCodec<Coding::dynamic8>::code(false, v, 1e30F), 1);
        EXPECT_EQ(BlockCodec<Coding::companded8>::code(false, v, 1e30F), 1);
        EXPECT_EQ(e4m3_quotient(false, v, 1e30F), 0x1p-9F);
    }
    EXPECT_EQ(BlockCodec<Coding::dynamic8>::code(false, 0.0F, 1.0F), 0);
    EXPECT_EQ(BlockCodec<Coding::companded8>::code(false, 0.0F, 1.0F), 0);
    EXPECT_EQ(e4m3_quotient(false, 0.0F, 1.0F), 0.0F);
    EXPECT_EQ(e4m3_quotient(true, 1e-8F, 1.0F), 1e-8F); // first moments may
}

TEST(BlockState, ScalesOfBlocksAreTorchaos) {
    const auto scale = [](Coding coding, float amax) {
        return with_block_codec(
            coding, [&](auto codec) { return decltype(codec)::scales(true, amax).stored; });
    };
    EXPECT_EQ(scale(Coding::dynamic8, 0.0F), 1e-12F); // of zeros alone
    EXPECT_EQ(scale(Coding::dynamic4, 3.0F), 3.0F);
    EXPECT_EQ(scale(Coding::block, 896.0F), 2.0F);
    EXPECT_EQ(scale(Coding::block, 0.0F), 1e-12F / 448.0F);
    EXPECT_EQ(scale(Coding::block128, 896.0F), 2.0F);
    EXPECT_TRUE(is_nan(scale(Coding::block, float_from_bits(kFloatQuietNan))));
    for (const float amax : {9e-13F, 1e-20F, 0x1p-126F}) { // where torchao's are 1e-12
        EXPECT_EQ(scale(Coding::dynamic8, amax), amax);
        EXPECT_EQ(scale(Coding::dynamic4, amax), amax);
    }
    EXPECT_EQ(scale(Coding::block, 448e-20F), 448e-20F / 448.0F);
    EXPECT_EQ(scale(Coding::block, 1e-37F), 0x1p-126F);
    EXPECT_EQ(scale(Coding::dynamic8, 0x1p-149F), 0x1p-126F);
    // Its codes of second moments have no zero.
    EXPECT_EQ(BlockCodec<Coding::dynamic4>::scales(false, 0.0F).stored, 0.0F);
}

// fp16's own bits wherever FlashOptim has a scale as exact as bf16's; every finite scale is kept.
TEST(BlockState, SixteenBitScalesKeepEveryFiniteNumber) {
    for (uint32_t code = 0; code <= 0xffffU; ++code) {
        const auto bits = static_cast<uint16_t>(code);
        const float value = BlockScale16::decode(bits);
        if (code < 0x8000U) { // also what was stored before there were others
            EXPECT_EQ(bits_from_float(value), bits_from_float(fp16_to_float(bits)));
        }
        const bool is_fp16 = code == 0 || (value >= 0x1p-17F && value <= 65504.0F);
        if (is_finite(value) && (code >= 0x8000U) != is_fp16 && code != 0x8000U) {
            EXPECT_EQ(BlockScale16::encode(value), bits) << value;
        }
    }
    for (uint32_t u = 0x00800000U; u < kFloatInfinity; u += 977U) {
        const float x = float_from_bits(u);
        const uint16_t bits = BlockScale16::encode(x);
        const auto kept = static_cast<double>(BlockScale16::decode(bits));
        ASSERT_LE(std::fabs(kept - static_cast<double>(x)),
                  static_cast<double>(x) * (x > 0x1.fep127F ? 0x1p-7 : 0x1p-8))
            << x;
        ASSERT_EQ(BlockScale16::encode(static_cast<float>(kept)), bits) << x;
    }
    EXPECT_EQ(BlockScale16::encode(65519.0F), float_to_fp16(65504.0F));
    EXPECT_TRUE(std::isinf(BlockScale16::decode(BlockScale16::encode(INFINITY))));
}

// Companded codes: both ends, and that every code is the code of its own value.
TEST(BlockState, CompandedCodesAreOfTheirValues) {
    using Codec = BlockCodec<Coding::companded8>;
    for (const float amax : {1.0F, 0.37F, 3e-5F, 60000.0F, 1e9F, 0x1p127F, 1e-20F}) {
        for (const bool is_signed : {true, false}) {
            const MomentScale scale = Codec::scales(is_signed, amax);
            EXPECT_NEAR(scale.stored / scale.divisor, 1.0F, 0x1p-8F);
            for (int32_t code = 0; code < 256; ++code) {
                const float x = Codec::value(is_signed, code, scale.divisor);
                EXPECT_EQ(Codec::code(is_signed, x, scale.divisor), code) << code << " of " << amax;
            }
            EXPECT_EQ(Codec::code(is_signed, amax, scale.divisor), is_signed ? 127 : 255);
            EXPECT_EQ(Codec::value(is_signed, 0, scale.stored), 0.0F);
        }
        EXPECT_EQ(Codec::code(true, -amax, amax), 256 - 127);
    }
    EXPECT_EQ(Codec::scales(true, 0.0F).stored, 0.0F);
    EXPECT_EQ(Codec::scales(false, 0x1p-60F).stored, 0x1p-30F);
    EXPECT_EQ(Codec::scales(true, 0x1p20F).stored, 0x1p20F); // fp16 would be infinite
    EXPECT_EQ(Codec::scales(true, 60000.0F).stored, fp16_to_float(float_to_fp16(60000.0F)));
    const float root = Codec::scales(false, 0x1.fffffep127F).stored;
    EXPECT_TRUE(is_finite(root * root));
    EXPECT_TRUE(std::isinf(Codec::scales(true, INFINITY).stored));
    EXPECT_TRUE(is_nan(Codec::scales(true, float_from_bits(kFloatQuietNan)).stored));
    EXPECT_EQ(Codec::code(true, float_from_bits(kFloatQuietNan), 1.0F), 0);
}

} // namespace
} // namespace mp::numerics
