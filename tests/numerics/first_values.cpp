// SPDX-License-Identifier: Apache-2.0
// First values: the normal quantile beside Python's statistics.NormalDist().inv_cdf, the numbers' distribution, and that a cut
// does not change them.
#include "numerics/first_values.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "numerics/bits.hpp"

namespace mp::numerics {
namespace {

std::vector<float> values_of(const InitRule& rule, uint64_t seed, uint64_t uid, int64_t first,
                             int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    first_values(rule, seed, uid, first, count, values.data());
    return values;
}

// From Python 3.11: the middle, both tails, their borders, and the ends of what 32 bits reach.
TEST(FirstValues, QuantilesAreThoseOfPython) {
    constexpr double kKnown[][2] = {{0x1p-33, -0x1.95a1198fcf3d5p+2},
                                    {1e-9, -0x1.7fdc11f44b5a7p+2},
                                    {1e-6, -0x1.30381a9799f7ep+2},
                                    {0.001, -0x1.8b8cbb7204470p+1},
                                    {0.0228, -0x1.ffc3863c7b85ep+0},
                                    {0.074, -0x1.72567aa9caedap+0},
                                    {0.0751, -0x1.7056dc6686c9ap+0},
                                    {0.1, -0x1.4813c36e26d34p+0},
                                    {0.25, -0x1.5956b87528a49p-1},
                                    {0.4, -0x1.036d6c4a04b5ap-2},
                                    {0.5, 0.0},
                                    {0.6, 0x1.036d6c4a04b5ap-2},
                                    {0.9249, 0x1.7056dc6686c9cp+0},
                                    {0.926, 0x1.72567aa9caedap+0},
                                    {0.975, 0x1.f5c0331eeff82p+0},
                                    {0.999999, 0x1.30381a97985f1p+2},
                                    {1.0 - 0x1p-33, 0x1.95a1198fcf3d5p+2}};
    for (const auto& [p, z] : kKnown) {
        EXPECT_NEAR(normal_quantile(p), z, 4e-15 * std::fabs(z)) << p;
    }
}

// The law of a normal number: its moments, and how much of it lies below some bounds, within five standard errors.
TEST(FirstValues, AreDistributedAsTheySay) {
    constexpr int64_t kCount = 1 << 20;
    const std::vector<float> values = values_of({InitKind::normal, 0.5, 2.0}, 7, 11, 0, kCount);
    double sum = 0.0;
    double squares = 0.0;
    for (const float value : values) {
        const double z = (static_cast<double>(value) - 0.5) / 2.0;
        sum += z;
        squares += z * z;
    }
    const double error = 1.0 / std::sqrt(static_cast<double>(kCount));
    EXPECT_NEAR(sum / kCount, 0.0, 5.0 * error);
    EXPECT_NEAR(squares / kCount, 1.0, 5.0 * std::sqrt(2.0) * error);
    for (const double share : {0.001, 0.05, 0.3, 0.5, 0.8, 0.99}) {
        const double bound = 0.5 + 2.0 * normal_quantile(share);
        const auto below = std::count_if(values.begin(), values.end(), [&](float value) {
            return static_cast<double>(value) < bound;
        });
        EXPECT_NEAR(static_cast<double>(below) / kCount, share,
                    5.0 * std::sqrt(share * (1.0 - share)) * error);
    }
    const std::vector<float> uniform = values_of({InitKind::uniform, -3.0, 1.0}, 7, 11, 0, kCount);
    EXPECT_GE(*std::min_element(uniform.begin(), uniform.end()), -3.0F);
    EXPECT_LE(*std::max_element(uniform.begin(), uniform.end()), 1.0F);
    const auto low =
        std::count_if(uniform.begin(), uniform.end(), [](float x) { return x < -2.0F; });
    EXPECT_NEAR(static_cast<double>(low) / kCount, 0.25, 5.0 * std::sqrt(0.25 * 0.75) * error);
    EXPECT_EQ(values_of({InitKind::constant, 0.1, 0.0}, 7, 11, 5, 3), std::vector<float>(3, 0.1F));
}

// Any cut gives the same numbers; another seed or name gives others.
TEST(FirstValues, FollowFromSeedNameAndElement) {
    for (const InitKind kind : {InitKind::uniform, InitKind::normal}) {
        const InitRule rule = {kind, -1.0, 1.0};
        const std::vector<float> whole = values_of(rule, 3, 4, 0, 1000);
        for (const int64_t cut : {1, 7, 8, 9, 500, 999}) {
            std::vector<float> parts = values_of(rule, 3, 4, 0, cut);
            const std::vector<float> rest = values_of(rule, 3, 4, cut, 1000 - cut);
            parts.insert(parts.end(), rest.begin(), rest.end());
            EXPECT_EQ(parts, whole) << cut;
        }
        EXPECT_NE(values_of(rule, 4, 4, 0, 1000), whole);
        EXPECT_NE(values_of(rule, 3, 5, 0, 1000), whole);
        std::vector<float> sorted = whole;
        std::sort(sorted.begin(), sorted.end());
        EXPECT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end());
    }
}

} // namespace
} // namespace mp::numerics
