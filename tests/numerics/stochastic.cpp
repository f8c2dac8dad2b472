// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding: the number of random patterns that round away from zero is counted, over all
// of them or by bisection, and must be the dropped fraction exactly. Statistics of the bits
// themselves are in sr_statistics.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "fixture.hpp"
#include "format_traits.hpp"
#include "numerics/philox.hpp"
#include "numerics/stochastic.hpp"

namespace mp::test {
namespace {

using namespace mp::numerics;

float from_bits(uint32_t u) { return std::bit_cast<float>(u); }
uint32_t to_bits(float x) { return std::bit_cast<uint32_t>(x); }

uint32_t count_away_bf16(float x) {
    const uint32_t toward = to_bits(x) >> 16;
    uint32_t away = 0;
    for (uint32_t r = 0; r < 65536; ++r) {
        const uint32_t code = float_to_bf16_sr(x, r);
        EXPECT_TRUE(code == toward || code == toward + 1);
        EXPECT_EQ(code, float_to_bf16_sr(x, r | 0xabcd0000u)) << "upper bits must not matter";
        away += code != toward ? 1u : 0u;
    }
    return away;
}

TEST(ClampToFinite, ChangesNothingButWhatIsBeyondTheLimit) {
    for (const float limit : {kE4m3Max, kE5m2Max, kFp16Max, 0x1.fep+127F}) {
        for (const uint32_t sign : {0U, kFloatSignMask}) {
            for (uint32_t step = 0; step < 0x80000000U; step += 0x1001U) {
                const float x = from_bits(step | sign);
                const float expected =
                    std::isnan(x) || std::abs(x) <= limit ? x : std::copysign(limit, x);
                ASSERT_EQ(to_bits(clamp_to_finite(x, limit)), to_bits(expected)) << step;
            }
            EXPECT_EQ(to_bits(clamp_to_finite(from_bits(kFloatInfinity | sign), limit)),
                      to_bits(limit) | sign);
            EXPECT_EQ(to_bits(clamp_to_finite(from_bits(0x7f800001U | sign), limit)),
                      0x7f800001U | sign);
        }
    }
}

TEST(StochasticBf16, ExactOverAllRandomPatterns) {
    EXPECT_EQ(count_away_bf16(1.001f), 8389u);
    for (const uint32_t u :
         {0x3f802000u, 0x3f800001u, 0x3f80ffffu, 0x40490fdbu, 0x00000001u, 0x00012345u, 0x007fffffu,
          0x00800000u, 0x7f7f0000u, 0x7f7fffffu, 0x7f7f8000u, 0x00000000u, 0x7f800000u}) {
        EXPECT_EQ(count_away_bf16(from_bits(u)), u & 0xffffu) << std::hex << u;
        EXPECT_EQ(count_away_bf16(from_bits(u | 0x80000000u)), u & 0xffffu) << std::hex << u;
    }
}

TEST(StochasticBf16, SpecialsBypass) {
    for (uint32_t r = 0; r < 65536; ++r) {
        ASSERT_EQ(float_to_bf16_sr(INFINITY, r), 0x7f80);
        ASSERT_EQ(float_to_bf16_sr(-INFINITY, r), 0xff80);
        // Adding to this payload would carry into the exponent and turn the NaN into -0.
        ASSERT_EQ(float_to_bf16_sr(from_bits(0x7fffffffu), r), 0x7fff);
        ASSERT_EQ(float_to_bf16_sr(from_bits(0xff800001u), r), 0xffc0);
    }
}

template <class F> struct Reference {
    std::vector<double> values =
        finite_values(read_fixture<uint32_t>(std::string(F::kName) + ".decode.f32"));

    // Largest code whose value is not above x.
    uint32_t toward(double x) const {
        const auto above = std::upper_bound(values.begin(), values.end(), x);
        return static_cast<uint32_t>(above - values.begin()) - 1;
    }
    // Of 2^32 random patterns, how many must round away: the fraction to the nearest 2^-32, ties
    // up. All steps are exact in fp64, as the fraction has at most 24 significant bits.
    uint64_t away(double x) const {
        const uint32_t code = toward(x);
        const double lower = values[code];
        const bool is_last = code + 1 == values.size();
        const double ulp = is_last ? lower - values[code - 1] : values[code + 1] - lower;
        return static_cast<uint64_t>(std::floor((x - lower) / ulp * 0x1p32 + 0.5));
    }
};

// Number of 32-bit patterns that give a code above `toward`. Larger patterns never round to a
// smaller code (checked on samples), so bisection finds it.
template <class F> uint64_t count_away(float x, uint32_t toward) {
    const uint32_t sign = std::signbit(x) ? F::kSign : 0u;
    uint64_t below = 0, count = uint64_t{1} << 32; // `below`: patterns known to stay
    while (count > 0) {
        const uint64_t half = count / 2;
        const uint32_t code = F::store_sr(x, static_cast<uint32_t>(below + half));
        EXPECT_TRUE(code == (toward | sign) || code == ((toward + 1) | sign)) << x;
        if (code == (toward | sign)) {
            below += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    for (uint32_t i = 0; i < 16; ++i) {
        const uint32_t r = i * 0x9E3779B1u;
        EXPECT_EQ(F::store_sr(x, r) == (toward | sign), r < below) << x << " " << r;
    }
    return (uint64_t{1} << 32) - below;
}

template <class F> class Stochastic : public ::testing::Test {
  protected:
    Reference<F> reference_;

    void check(float x) {
        const double magnitude = std::fabs(static_cast<double>(x));
        const uint32_t toward = reference_.toward(magnitude);
        ASSERT_EQ(count_away<F>(x, toward), reference_.away(magnitude)) << std::hexfloat << x;
    }
};
using Formats = ::testing::Types<Fp16, E4m3, E5m2>;
struct FormatNames {
    template <class F> static std::string GetName(int) { return F::kName; }
};
TYPED_TEST_SUITE(Stochastic, Formats, FormatNames);

TYPED_TEST(Stochastic, ProbabilityIsExactOnScatteredValues) {
    using F = TypeParam;
    const float largest = static_cast<float>(this->reference_.values.back());
    int checked = 0;
    for (uint32_t i = 0; checked < 20000; ++i) {
        const float x = from_bits(i * 0x9E3779B1u);
        if (!(std::fabs(x) <= largest)) {
            continue;
        }
        ++checked;
        ASSERT_NO_FATAL_FAILURE(this->check(x));
    }
    for (uint32_t code = 0; code <= F::kMaxFinite; ++code) {
        const float x = F::load(static_cast<typename F::Code>(code));
        ASSERT_EQ(F::store_sr(x, 0u), code);
        ASSERT_EQ(F::store_sr(-x, 0xffffffffu), code | F::kSign) << "representable is unchanged";
    }
}

TYPED_TEST(Stochastic, ProbabilityIsExactInEverySubnormalBinade) {
    using F = TypeParam;
    const double ulp = this->reference_.values[1];
    for (int e = -149; std::ldexp(1.0, e) <= ulp * (2 << F::kMantissaBits); ++e) {
        const float power = std::ldexp(1.0f, e);
        for (const float x : {power, std::nextafter(power, 1.0f), 1.5f * power, -power,
                              std::nextafter(2.0f * power, 0.0f)}) {
            ASSERT_NO_FATAL_FAILURE(this->check(x));
        }
    }
    // 2^-33 of an ulp is half of what 32 random bits can tell; it counts as one pattern of 2^32.
    const float tie = static_cast<float>(std::ldexp(ulp, -33));
    EXPECT_EQ(count_away<F>(tie, 0), 1u);
    EXPECT_EQ(count_away<F>(std::nextafter(tie, 0.0f), 0), 0u);
    EXPECT_EQ(count_away<F>(std::nextafter(3.0f * tie, 0.0f), 0), 1u);
    EXPECT_EQ(count_away<F>(3.0f * tie, 0), 2u);
}

// All patterns of the bits that decide, and the others must not matter.
template <class F> void exhaust(float x, int dropped_bits) {
    const uint32_t dropped = to_bits(x) & ((1u << dropped_bits) - 1u);
    const int unused = 32 - dropped_bits;
    const uint32_t toward = F::store_sr(x, 0);
    uint32_t away = 0;
    for (uint32_t p = 0; p < (1u << dropped_bits); ++p) {
        const uint32_t code = F::store_sr(x, p << unused);
        ASSERT_EQ(code, F::store_sr(x, (p << unused) | ((1u << unused) - 1u)));
        ASSERT_TRUE(code == toward || code == toward + 1);
        away += code - toward;
    }
    EXPECT_EQ(away, dropped) << x;
}

TEST(StochasticExhaustive, NormalValues) {
    for (const float x : {1.001f, -1.001f, 3.14159265f, 0x1.0008p-14f, 60000.5f, 1.0f}) {
        exhaust<Fp16>(x, 13);
    }
    exhaust<E4m3>(1.001f, 20);
    exhaust<E4m3>(-0x1.fffffep-6f, 20);
    exhaust<E5m2>(1.001f, 21);
    exhaust<E5m2>(-0x1.234566p-14f, 21);
}

TYPED_TEST(Stochastic, NanStaysNan) {
    using F = TypeParam;
    for (const uint32_t u : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff812345u, 0xffffffffu}) {
        for (const uint32_t r : {0u, 0x7fffffffu, 0xffffffffu}) {
            EXPECT_EQ(F::store_sr(from_bits(u), r), F::store(from_bits(u))) << std::hex << u;
        }
    }
}

TEST(StochasticOverflow, Fp8Saturates) {
    for (const uint32_t r : {0u, 1u, 0x80000000u, 0xffffffffu}) {
        for (const float x : {448.0f, 448.1f, 464.0f, 480.0f, 1e30f, INFINITY}) {
            EXPECT_EQ(float_to_e4m3_sr(x, r), 0x7e) << x;
            EXPECT_EQ(float_to_e4m3_sr(-x, r), 0xfe) << x;
        }
        for (const float x : {57344.0f, 57345.0f, 61440.0f, 65536.0f, 1e30f, INFINITY}) {
            EXPECT_EQ(float_to_e5m2_sr(x, r), 0x7b) << x;
            EXPECT_EQ(float_to_e5m2_sr(-x, r), 0xfb) << x;
        }
    }
}

// Without saturation the last step leads out of the range, with the probability of the fraction: a quarter of the way
// from 448 to 480, and from 57344 to 65536.
TEST(StochasticOverflow, Fp8LeavesItsRangeWhereItMay) {
    constexpr uint32_t kQuarter = 1u << 30;
    for (const float sign : {1.0f, -1.0f}) {
        const uint32_t bit = sign < 0 ? 0x80u : 0u;
        for (const uint32_t r : {0u, kQuarter - 1, 0xffffffffu}) {
            for (const float x : {480.0f, 1e30f, INFINITY}) {
                EXPECT_EQ(float_to_e4m3_sr_nonsat(sign * x, r), 0x7fu | bit) << x;
            }
            for (const float x : {65536.0f, 1e30f, INFINITY}) {
                EXPECT_EQ(float_to_e5m2_sr_nonsat(sign * x, r), 0x7cu | bit) << x;
            }
            EXPECT_EQ(float_to_e4m3_sr_nonsat(sign * 448.0f, r), 0x7eu | bit);
            EXPECT_EQ(float_to_e5m2_sr_nonsat(sign * 57344.0f, r), 0x7bu | bit);
            EXPECT_EQ(float_to_e4m3_sr_nonsat(sign * 3.14f, r), float_to_e4m3_sr(sign * 3.14f, r));
            EXPECT_EQ(float_to_e5m2_sr_nonsat(sign * 3.14f, r), float_to_e5m2_sr(sign * 3.14f, r));
        }
        // 3/4 * 2^32 random numbers end below the next step.
        EXPECT_EQ(float_to_e4m3_sr_nonsat(sign * 456.0f, 3 * kQuarter - 1), 0x7eu | bit);
        EXPECT_EQ(float_to_e4m3_sr_nonsat(sign * 456.0f, 3 * kQuarter), 0x7fu | bit);
        EXPECT_EQ(float_to_e5m2_sr_nonsat(sign * 59392.0f, 3 * kQuarter - 1), 0x7bu | bit);
        EXPECT_EQ(float_to_e5m2_sr_nonsat(sign * 59392.0f, 3 * kQuarter), 0x7cu | bit);
    }
    EXPECT_EQ(float_to_e4m3_sr_nonsat(from_bits(0x7fc00000u), 0), 0x7f);
    EXPECT_EQ(float_to_e5m2_sr_nonsat(from_bits(0x7fc00000u), 0),
              float_to_e5m2(from_bits(0x7fc00000u)));
}

TEST(StochasticOverflow, Fp16ReachesInfinityWithTheRightProbability) {
    // 65504 + 8 of 32: one quarter.
    EXPECT_EQ(count_away<Fp16>(65512.0f, 0x7bff), uint64_t{1} << 30);
    EXPECT_EQ(count_away<Fp16>(-65512.0f, 0x7bff), uint64_t{1} << 30);
    for (const uint32_t r : {0u, 0xffffffffu}) {
        EXPECT_EQ(float_to_fp16_sr(65504.0f, r), 0x7bff);
        EXPECT_EQ(float_to_fp16_sr(65536.0f, r), 0x7c00);
        EXPECT_EQ(float_to_fp16_sr(-1e30f, r), 0xfc00);
        EXPECT_EQ(float_to_fp16_sr(INFINITY, r), 0x7c00);
    }
}

} // namespace
} // namespace mp::test
