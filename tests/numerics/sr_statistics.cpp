// SPDX-License-Identifier: Apache-2.0
// Statistics of the rounding stream along every axis it is used on, and of sums rounded with it.
// All draws are fixed by their seeds, so a test here passes or fails for good. Bounds are 5 sigma.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "numerics/philox.hpp"
#include "numerics/stochastic.hpp"

namespace mp::test {
namespace {

using namespace mp::numerics;

constexpr std::size_t kDraws = std::size_t{1} << 20;

struct Axis {
    std::string name;
    std::function<uint32_t(uint64_t)> draw; // 16 bits
};

std::vector<Axis> axes() {
    return {
        {"elements",
         [](uint64_t i) { return sr_bits16_at(make_sr_key(1, 2, 3), Purpose::param, i); }},
        {"steps", [](uint64_t i) { return sr_bits16_at(make_sr_key(1, 2, i), Purpose::param, 5); }},
        {"parameters",
         [](uint64_t i) { return sr_bits16_at(make_sr_key(1, i, 3), Purpose::param, 5); }},
        {"seeds", [](uint64_t i) { return sr_bits16_at(make_sr_key(i, 2, 3), Purpose::param, 5); }},
        {"purposes",
         [](uint64_t i) {
             return sr_bits16_at(make_sr_key(1, 2, 3), static_cast<Purpose>(i % 7), i / 7);
         }},
        {"low halves",
         [](uint64_t i) { return sr_bits32_at(make_sr_key(1, 2, 3), Purpose::cast, i) & 0xffffu; }},
        {"low half after high half",
         [](uint64_t i) {
             const uint32_t r = sr_bits32_at(make_sr_key(1, 2, 3), Purpose::cast, i / 2);
             return i % 2 == 0 ? r >> 16 : r & 0xffffu;
         }},
    };
}

TEST(SrStatistics, UniformAndUncorrelatedAlongEveryAxis) {
    for (const Axis& axis : axes()) {
        std::vector<uint32_t> count(65536, 0);
        double product = 0.0, previous = 0.0;
        for (uint64_t i = 0; i < kDraws; ++i) {
            const uint32_t r = axis.draw(i);
            ASSERT_LT(r, 65536u);
            ++count[r];
            // Centred and of unit variance.
            const double x = (static_cast<double>(r) - 32767.5) / (65536.0 / std::sqrt(12.0));
            product += x * previous;
            previous = x;
        }
        const double expected = static_cast<double>(kDraws) / 65536.0;
        double chi2 = 0.0;
        for (const uint32_t c : count) {
            chi2 += (c - expected) * (c - expected) / expected;
        }
        EXPECT_NEAR(chi2, 65535.0, 5.0 * std::sqrt(2.0 * 65535.0)) << axis.name;
        const double correlation = product / static_cast<double>(kDraws);
        EXPECT_LT(std::fabs(correlation), 5.0 / std::sqrt(static_cast<double>(kDraws)))
            << axis.name;
    }
}

// The mean of N roundings of x has sigma ulp * sqrt(q (1 - q) / N), q the dropped fraction.
void expect_unbiased(float x, double ulp, const std::function<double(uint64_t)>& rounded) {
    double sum = 0.0;
    for (uint64_t i = 0; i < kDraws; ++i) {
        sum += rounded(i) - static_cast<double>(x);
    }
    const double n = static_cast<double>(kDraws);
    const double q = std::fmod(std::fabs(static_cast<double>(x)) / ulp, 1.0);
    EXPECT_LT(std::fabs(sum / n), 5.0 * ulp * std::sqrt(q * (1.0 - q) / n)) << x;
}

TEST(SrStatistics, MeanIsTheInput) {
    const SrKey key = make_sr_key(11, 12, 13);
    const auto r16 = [&](uint64_t i) { return sr_bits16_at(key, Purpose::param, i); };
    const auto r32 = [&](uint64_t i) { return sr_bits32_at(key, Purpose::param, i); };
    for (const float x : {1.001f, -1.001f, 1.0039f}) {
        expect_unbiased(x, 0x1p-7, [&](uint64_t i) {
            return static_cast<double>(bf16_to_float(float_to_bf16_sr(x, r16(i))));
        });
        expect_unbiased(x, 0x1p-10, [&](uint64_t i) {
            return static_cast<double>(fp16_to_float(float_to_fp16_sr(x, r32(i))));
        });
        expect_unbiased(x, 0x1p-3, [&](uint64_t i) {
            return static_cast<double>(e4m3_to_float(float_to_e4m3_sr(x, r32(i))));
        });
        expect_unbiased(x, 0x1p-2, [&](uint64_t i) {
            return static_cast<double>(e5m2_to_float(float_to_e5m2_sr(x, r32(i))));
        });
    }
    // Below the smallest subnormal of each format.
    expect_unbiased(0x1.8p-26f, 0x1p-24, [&](uint64_t i) {
        return static_cast<double>(fp16_to_float(float_to_fp16_sr(0x1.8p-26f, r32(i))));
    });
    expect_unbiased(0x1.8p-11f, 0x1p-9, [&](uint64_t i) {
        return static_cast<double>(e4m3_to_float(float_to_e4m3_sr(0x1.8p-11f, r32(i))));
    });
}

// 1000 updates of -1e-4 from 1: each is 1/39 of a bf16 ulp, so rounding to nearest never moves.
// With stochastic rounding the mean is 1 - T u and the variance T ulp u (1 - u / ulp).
TEST(SrStatistics, SmallUpdatesAreNotLost) {
    constexpr int kSteps = 1000, kSeeds = 200;
    constexpr float kUpdate = 1e-4f;
    double sum = 0.0, squares = 0.0;
    uint16_t nearest = float_to_bf16(1.0f);
    for (int step = 0; step < kSteps; ++step) {
        nearest = float_to_bf16(bf16_to_float(nearest) - kUpdate);
    }
    EXPECT_EQ(bf16_to_float(nearest), 1.0f);
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
        uint16_t p = float_to_bf16(1.0f);
        for (uint64_t step = 0; step < kSteps; ++step) {
            const SrKey key = make_sr_key(seed, 0, step);
            p = float_to_bf16_sr(bf16_to_float(p) - kUpdate, sr_bits16_at(key, Purpose::param, 0));
        }
        const double x = static_cast<double>(bf16_to_float(p));
        sum += x;
        squares += x * x;
    }
    const double mean = sum / kSeeds;
    const double sd = std::sqrt((squares - sum * mean) / (kSeeds - 1));
    const double u = static_cast<double>(kUpdate), ulp = 0x1p-8;
    const double formula = std::sqrt(kSteps * ulp * u * (1.0 - u / ulp));
    RecordProperty("mean", std::to_string(mean));
    RecordProperty("sd", std::to_string(sd));
    EXPECT_NEAR(mean, 1.0 - kSteps * u, 5.0 * formula / std::sqrt(kSeeds));
    EXPECT_NEAR(sd / formula, 1.0, 5.0 / std::sqrt(2.0 * kSeeds));
}

} // namespace
} // namespace mp::test
