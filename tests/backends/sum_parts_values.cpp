// SPDX-License-Identifier: Apache-2.0
// What the numbers of sum_parts must be, on every backend: its written order, one rounding, no order in fixed point, what is
// not finite, and what has no meaning.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "sum_case.hpp"

namespace mp::test {
namespace {

Part floats(const std::vector<float>& values) {
    Part part;
    part.codes = HostArray(DType::fp32, static_cast<int64_t>(values.size()));
    std::memcpy(part.codes.bytes.data(), values.data(), 4 * values.size());
    return part;
}

class SumPartsValues : public BackendTest {
  protected:
    [[nodiscard]] SumResult run_case(const SumCase& c) {
        SumResult result;
        EXPECT_TRUE(
            sum(device(), device().device().candidates(OpKind::sum_parts).items[0], c, result));
        return result;
    }
    [[nodiscard]] std::vector<float> values(const SumCase& c) {
        HostArray array(c.to, c.count);
        array.bytes = run_case(c).sum;
        std::vector<float> out;
        for (int64_t i = 0; i < c.count; ++i) {
            out.push_back(array.get(i));
        }
        return out;
    }
    [[nodiscard]] bool is_refused(const SumCase& c) {
        SumResult result;
        return !sum(device(), device().device().candidates(OpKind::sum_parts).items[0], c, result);
    }
};

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST_P(SumPartsValues, FollowsTheWrittenOrder) {
    SumCase c;
    c.count = 1;
    for (const float x : {1.0F, 0x1p-24F, 0x1p-24F, 0x1p-24F}) {
        c.parts.push_back(floats({x}));
    }
    left_to_right(c);
    EXPECT_EQ(values(c)[0], 1.0F) << "each is half a unit in the last place, and is lost";
    balanced(c);
    EXPECT_EQ(values(c)[0], 1.0F + 0x1p-23F) << "(1 + e) + (e + e)";
    c.parts[1].merges = 0;
    c.parts[2].merges = 0;
    c.parts[3].merges = 3;
    EXPECT_EQ(values(c)[0], 1.0F + 0x1p-22F) << "1 + (e + (e + e)): 1.5 units, to even";
    c.mode = SumMode::fp64;
    left_to_right(c);
    EXPECT_EQ(values(c)[0], 1.0F + 0x1p-22F);
}

// 1 + 2^-8 + 2^-40 lies above the middle of two bf16 numbers; rounded to fp32 first it would be on it.
TEST_P(SumPartsValues, RoundsOnce) {
    SumCase c;
    c.count = 4;
    c.parts.push_back(floats({1.0F, -1.0F, 0x1p127F, 0x1p-126F}));
    c.parts.push_back(floats({0x1p-8F, -0x1p-8F, 0x1p127F, 0.0F}));
    c.parts.push_back(floats({0x1p-40F, -0x1p-40F, 0.0F, 0x1p-135F}));
    left_to_right(c);
    c.to = DType::bf16;
    c.mode = SumMode::fp64;
    const std::vector<float> expected = {1.0F + 0x1p-7F, -1.0F - 0x1p-7F, kInfinity, 0x1p-126F};
    EXPECT_EQ(values(c), expected);
    c.mode = SumMode::fixed;
    c.block_amax = {numerics::bits_from_float(0x1p127F)};
    c.count = 3;
    for (Part& part : c.parts) { // without the large one there are bits for the small one
        std::vector<float> small(3, 0.0F);
        std::memcpy(small.data(), part.codes.bytes.data(), 8);
        part = floats(small);
    }
    c.block_amax = {numerics::bits_from_float(1.0F)};
    EXPECT_EQ(values(c), (std::vector<float>{1.0F + 0x1p-7F, -1.0F - 0x1p-7F, 0.0F}));
}

// Multiples of a power of two whose sums all fit: every order and mode gives the same, known sum.
TEST_P(SumPartsValues, AreExactWhereEverySumFits) {
    constexpr int64_t kCount = 1000;
    constexpr int kParts = 16;
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
        SumCase c;
        c.count = kCount;
        std::vector<float> expected(kCount, 0.0F);
        for (int p = 0; p < kParts; ++p) {
            Part part;
            part.codes = HostArray(dtype, kCount);
            for (int64_t i = 0; i < kCount; ++i) {
                const auto h = numerics::splitmix64(static_cast<uint64_t>(i * kParts + p));
                const float x = static_cast<float>(static_cast<int64_t>(h % 255) - 127) * 0x1p-10F;
                part.codes.set(i, x);
                expected[static_cast<std::size_t>(i)] += x;
            }
            c.parts.push_back(std::move(part));
        }
        c.block_amax.assign(static_cast<std::size_t>(block_count(c)), 0x3e000000U);
        for (const SumMode mode : {SumMode::fp32, SumMode::fp64, SumMode::fixed}) {
            c.mode = mode;
            left_to_right(c);
            EXPECT_EQ(values(c), expected);
            balanced(c);
            std::reverse(c.parts.begin(), c.parts.end());
            for (Part& part : c.parts) {
                part.merges = 0;
            }
            balanced(c);
            EXPECT_EQ(values(c), expected);
        }
    }
}

TEST_P(SumPartsValues, HaveNoOrderInFixedPoint) {
    SumCase c;
    c.mode = SumMode::fixed;
    c.count = 3000;
    c.fixed_bits = numerics::fixed_bits(4);
    for (uint64_t i = 0; i < 9; ++i) {
        c.parts.push_back(make_part(DType::fp32, c.count, c.grid, Content::normal, 70 + i));
    }
    SumCase amax = c;
    amax.mode = SumMode::largest;
    c.block_amax = run_case(amax).block_amax;
    const SumResult forward = run_case(c);
    for (int64_t i = 0; i < c.count; ++i) {
        long double exact = 0;
        for (const Part& part : c.parts) {
            exact += static_cast<long double>(part.codes.get(i));
        }
        float got = 0;
        std::memcpy(&got, forward.sum.data() + 4 * i, sizeof got);
        ASSERT_NEAR(static_cast<double>(got), static_cast<double>(exact),
                    0x1p-24 * std::abs(static_cast<double>(exact)) + 0x1p-50)
            << i;
    }
    // The same where some were added before, as another rank does.
    SumCase local = c;
    local.to = DType::int64;
    local.parts.assign(c.parts.begin() + 2, c.parts.begin() + 7);
    Part units;
    units.codes = HostArray(DType::int64, c.count);
    units.codes.bytes = run_case(local).sum;
    SumCase rest = c;
    rest.parts = {c.parts[8], units, c.parts[0], c.parts[7], c.parts[1]};
    EXPECT_EQ(run_case(rest), forward);
}

TEST_P(SumPartsValues, ShowWhatIsNotFinite) {
    const float nan = -std::numeric_limits<float>::quiet_NaN();
    for (const SumMode mode : {SumMode::fp32, SumMode::fp64}) {
        SumCase c;
        c.mode = mode;
        c.count = 4;
        c.parts = {floats({1.0F, kInfinity, kInfinity, 2.0F}),
                   floats({nan, 1.0F, -kInfinity, 3.0F})};
        left_to_right(c);
        for (const DType to : kWideTypes) {
            c.to = to;
            const std::vector<float> sums = values(c);
            EXPECT_EQ(numerics::bits_from_float(sums[0]), numerics::kFloatQuietNan);
            EXPECT_EQ(sums[1], kInfinity);
            EXPECT_EQ(numerics::bits_from_float(sums[2]), numerics::kFloatQuietNan);
            EXPECT_EQ(sums[3], 5.0F);
        }
    }
    SumCase c;
    c.mode = SumMode::largest;
    c.count = 130;
    std::vector<float> quiet(130, 1.0F);
    quiet[129] = -7.0F;
    std::vector<float> loud(130, -2.0F);
    loud[3] = -kInfinity;
    c.parts = {floats(quiet), floats(loud)};
    EXPECT_EQ(run_case(c).block_amax, (std::vector<uint32_t>{0x7f800000U, 0x40e00000U}));
    loud[4] = nan;
    c.parts[1] = floats(loud);
    EXPECT_EQ(run_case(c).block_amax, (std::vector<uint32_t>{0x7fc00000U, 0x40e00000U}));
    c.block_amax = run_case(c).block_amax;
    c.mode = SumMode::fixed;
    const std::vector<float> sums = values(c);
    EXPECT_TRUE(std::all_of(sums.begin(), sums.begin() + 128, [](float x) { return x != x; }));
    EXPECT_EQ(sums[128], -1.0F);
    EXPECT_EQ(sums[129], -9.0F);
    c.block_amax = {0x40000000U, 0x40000000U}; // a rank lied: 7 is above 2
    EXPECT_TRUE(std::isnan(values(c)[129]));
    EXPECT_TRUE(std::isnan(values(c)[3]) && std::isnan(values(c)[4]));
    EXPECT_EQ(values(c)[5], -1.0F);
}

TEST_P(SumPartsValues, RefuseWhatHasNoMeaning) {
    SumCase c;
    c.count = 2;
    c.parts = {floats({1.0F, 2.0F}), floats({1.0F, 2.0F})};
    left_to_right(c);
    EXPECT_FALSE(is_refused(c));
    SumCase wrong = c;
    wrong.parts[1].merges = 2;
    EXPECT_TRUE(is_refused(wrong)) << "the stack runs empty";
    wrong.parts[1].merges = 0;
    EXPECT_TRUE(is_refused(wrong)) << "two values are left";
    wrong.parts[1].merges = -1;
    EXPECT_TRUE(is_refused(wrong));
    wrong = c;
    wrong.parts.assign(numerics::kSumDepth + 1, c.parts[0]);
    wrong.parts.back().merges = numerics::kSumDepth;
    EXPECT_TRUE(is_refused(wrong)) << "the stack runs over";
    wrong = c;
    wrong.parts[0] = make_part(DType::fp8_e4m3, 2, c.grid, Content::normal, 1);
    EXPECT_FALSE(is_refused(wrong));
    wrong.grid = {};
    EXPECT_TRUE(is_refused(wrong));
    wrong = c;
    wrong.parts[0] = make_part(DType::int64, 2, c.grid, Content::normal, 1);
    EXPECT_TRUE(is_refused(wrong));
    wrong = c;
    wrong.mode = SumMode::fixed;
    wrong.fixed_bits = 62;
    EXPECT_TRUE(is_refused(wrong));
    wrong.fixed_bits = 61;
    EXPECT_FALSE(is_refused(wrong));
    wrong.to = DType::fp8_e4m3;
    EXPECT_TRUE(is_refused(wrong));
}

MP_ALL_BACKENDS(SumPartsValues);

} // namespace
} // namespace mp::test
