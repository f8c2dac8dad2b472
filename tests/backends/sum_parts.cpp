// SPDX-License-Identifier: Apache-2.0
// sum_parts on every backend: the reference's bits for every type of part, order and result, and what they must be.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "harness.hpp"
#include "numerics/part_sum.hpp"

namespace mp::test {
namespace {

using Bytes = std::vector<unsigned char>;

struct Part {
    HostArray codes;
    HostArray scales; // none where codes are no fp8
    int32_t merges = 0;
};

struct SumCase {
    std::vector<Part> parts;
    SumMode mode = SumMode::fp32;
    DType to = DType::fp32;
    ScaleGrid grid = kRowBlockScales;
    int64_t count = 0;
    int64_t first_element = 0;
    int32_t fixed_bits = numerics::fixed_bits(6);
    std::vector<uint32_t> block_amax;
    int64_t offset = 0; // elements
};

struct SumResult {
    Bytes sum;
    std::vector<uint32_t> block_amax;
    bool operator==(const SumResult&) const = default;
};

int64_t block_count(const SumCase& c) {
    constexpr int64_t kBlock = numerics::kExactBlock;
    return c.count == 0 ? 0 : (c.first_element % kBlock + c.count + kBlock - 1) / kBlock;
}

// False where the candidate does not support the case.
bool sum(TestDevice& on, const Candidate& candidate, const SumCase& c, SumResult& result) {
    std::vector<std::unique_ptr<DeviceArray>> arrays;
    std::vector<SumPart> parts;
    for (const Part& part : c.parts) {
        SumPart to;
        arrays.push_back(std::make_unique<DeviceArray>(on, part.codes, c.offset));
        to.codes = arrays.back()->data();
        to.dtype = part.codes.dtype;
        to.merges = part.merges;
        if (part.scales.dtype != DType::none) {
            arrays.push_back(std::make_unique<DeviceArray>(on, part.scales, c.offset));
            to.scale_inv = arrays.back()->data();
        }
        parts.push_back(to);
    }
    const DeviceBytes table(on, parts.data(), parts.size() * sizeof(SumPart));
    std::vector<uint32_t> amax = c.block_amax;
    amax.resize(static_cast<std::size_t>(block_count(c)), 0x5a5a5a5aU);
    DeviceBytes blocks(on, amax.data(), amax.size() * sizeof(uint32_t));
    DeviceArray destination(on, HostArray(c.to, c.count), c.offset);
    SumPartsDesc op{};
    op.kind = OpKind::sum_parts;
    op.parts = table.as<const SumPart>();
    op.host_parts = parts.data();
    op.part_count = static_cast<int32_t>(parts.size());
    op.mode = c.mode;
    op.count = c.count;
    op.grid = c.grid;
    op.destination = destination.ref();
    op.block_amax = blocks.as<uint32_t>();
    op.first_element = c.first_element;
    op.fixed_bits = c.fixed_bits;
    if (!supports(on, candidate, op)) {
        return false;
    }
    run(on, candidate, op);
    on.sync();
    result.sum = destination.download().bytes;
    blocks.download(amax.data());
    result.block_amax = std::move(amax);
    return true;
}

Part make_part(DType dtype, int64_t count, const ScaleGrid& grid, Content content, uint64_t seed) {
    Part part;
    part.codes = HostArray(dtype, count);
    if (dtype == DType::int64) {
        for (int64_t i = 0; i < count; ++i) {
            const uint64_t h = numerics::splitmix64(seed * 977 + static_cast<uint64_t>(i));
            const int64_t units = h % 97 == 0 ? numerics::kUnitsNan : static_cast<int64_t>(h) >> 9;
            std::memcpy(part.codes.bytes.data() + 8 * i, &units, sizeof units);
        }
        return part;
    }
    part.codes = make_array(dtype, count, content, seed);
    // Every third one is plain numbers to the sum, as codes are whose scale all ranks know.
    if ((dtype == DType::fp8_e4m3 || dtype == DType::fp8_e5m2) && seed % 3 != 0) {
        part.scales = make_array(grid.dtype, grid.count(1, count), Content::patterns, seed + 1);
        if (content == Content::normal && grid.dtype == DType::fp32) {
            part.scales = make_array(grid.dtype, grid.count(1, count), content, seed + 1);
        }
    }
    return part;
}

// 0, 1, 1, ...: left to right.
void left_to_right(SumCase& c) {
    for (std::size_t i = 0; i < c.parts.size(); ++i) {
        c.parts[i].merges = i == 0 ? 0 : 1;
    }
}

// The balanced tree over a power of two of parts.
void balanced(SumCase& c) {
    for (std::size_t i = 0; i < c.parts.size(); ++i) {
        c.parts[i].merges = __builtin_ctz(static_cast<unsigned>(i + 1));
    }
}

constexpr ScaleGrid kMxGrid = {DType::e8m0, 1, 32};
constexpr DType kPartTypes[] = {DType::fp32, DType::fp16, DType::bf16, DType::fp8_e4m3,
                                DType::fp8_e5m2};

class SumParts : public BackendTest {
  protected:
    void compare(const SumCase& c) {
        SumResult expected;
        ASSERT_TRUE(sum(reference_device(), reference_candidate(OpKind::sum_parts), c, expected));
        const int32_t supporting =
            for_each_candidate(device(), OpKind::sum_parts, [&](const Candidate& candidate) {
                SumResult result;
                if (!sum(device(), candidate, c, result)) {
                    return false;
                }
                EXPECT_EQ(result, expected) << c.count << " elements from " << c.first_element;
                return true;
            });
        EXPECT_GT(supporting, 0);
    }
};

TEST_P(SumParts, EqualsTheReferenceForEveryTypeAndOrder) {
    for (const ScaleGrid& grid : {kTensorScale, kRowBlockScales, kMxGrid}) {
        for (const Content content : kAllContents) {
            for (const DType to : kWideTypes) {
                SumCase c;
                c.grid = grid;
                c.to = to;
                c.count = 700;
                uint64_t seed = 40;
                for (const DType dtype : {DType::fp8_e4m3, DType::bf16, DType::fp32, DType::fp16,
                                          DType::fp8_e5m2, DType::bf16, DType::fp32, DType::fp16}) {
                    c.parts.push_back(make_part(dtype, c.count, grid, content, seed += 7));
                }
                for (const SumMode mode : {SumMode::fp32, SumMode::fp64}) {
                    c.mode = mode;
                    left_to_right(c);
                    compare(c);
                    balanced(c);
                    compare(c);
                }
            }
        }
    }
}

TEST_P(SumParts, EqualsTheReferenceForEverySize) {
    for (const int64_t count : {0, 1, 7, 127, 128, 129, 255, 256, 257, 16385, 70001}) {
        for (const DType dtype : kPartTypes) {
            for (const int64_t first : {0, 1, 127, 16380}) {
                SumCase c;
                c.count = count;
                c.first_element = first;
                c.offset = first % 4;
                for (uint64_t i = 0; i < 3; ++i) {
                    c.parts.push_back(make_part(dtype, count, c.grid, Content::normal, 50 + i));
                }
                left_to_right(c);
                compare(c);
                c.mode = SumMode::largest;
                compare(c);
                c.mode = SumMode::fixed;
                c.block_amax.assign(static_cast<std::size_t>(block_count(c)), 0x3f000000U);
                compare(c);
            }
        }
    }
}

TEST_P(SumParts, EqualsTheReferenceInFixedPoint) {
    for (const Content content : kAllContents) {
        for (const DType to : {DType::fp32, DType::fp16, DType::bf16, DType::int64}) {
            SumCase c;
            c.mode = SumMode::fixed;
            c.to = to;
            c.count = 1500;
            c.first_element = 77;
            for (const DType dtype : kPartTypes) {
                c.parts.push_back(make_part(dtype, c.count, c.grid, content, 61));
            }
            c.parts.push_back(make_part(DType::int64, c.count, c.grid, content, 62));
            for (const uint32_t amax : {0x3f800000U, 0x7f7fffffU, 0x00000005U, 0U, 0x7f800000U}) {
                c.block_amax.push_back(amax);
                c.block_amax.push_back(amax + 1);
                c.block_amax.push_back(0x40490fdbU);
            }
            for (const int32_t bits : {numerics::fixed_bits(0), numerics::kFewestFixedBits}) {
                c.fixed_bits = bits;
                compare(c);
            }
        }
    }
}

MP_COMPARE_BACKENDS(SumParts);

// ---- what the numbers must be --------------------------------------------------------------------

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
