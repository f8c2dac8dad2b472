// SPDX-License-Identifier: Apache-2.0
// quantize under two grids in one operation: each array has the bits that an operation of its own would give it.
#include "quantize_case.hpp"

namespace mp::test {
namespace {

class QuantizeBoth : public BackendTest {
  protected:
    void compare(const QuantizeCase& c) { compare_quantize(device(), c); }
};

QuantizeCase case_of(const HostArray& source, const Extent& shape, const GridRule& first,
                     const GridRule& second) {
    QuantizeCase c;
    c.source = source;
    c.rows = shape.first;
    c.columns = shape.second;
    c.to = first.codes.front();
    c.grid = first.grid;
    c.policy = first.policy(c.to);
    c.second = {second.codes.back(), second.grid, second.policy(second.codes.back())};
    c.previous_scale = 2.0F;
    return c;
}

// The reference against itself, one array after the other.
TEST(QuantizeBothReference, WritesWhatTwoOperationsWrite) {
    const Extent shape = {130, 150};
    for (const GridRule& first : kGridRules) {
        for (const GridRule& second : kGridRules) {
            const HostArray source =
                make_array(DType::bf16, shape.first * shape.second, Content::normal, 11);
            const QuantizeCase both = case_of(source, shape, first, second);
            SCOPED_TRACE(both.text());
            QuantizeCase alone = both;
            alone.second = {};
            QuantizeCase other = alone;
            other.to = both.second.dtype;
            other.grid = both.second.grid;
            other.policy = both.second.policy;
            QuantizeResult result;
            QuantizeResult results[2];
            const Candidate& candidate = reference_candidate(OpKind::quantize);
            ASSERT_TRUE(quantize(reference_device(), candidate, both, result));
            ASSERT_TRUE(quantize(reference_device(), candidate, alone, results[0]));
            ASSERT_TRUE(quantize(reference_device(), candidate, other, results[1]));
            EXPECT_TRUE(same_bytes("first", results[0].codes, result.codes));
            EXPECT_TRUE(same_bytes("first's scales", results[0].scales, result.scales));
            EXPECT_TRUE(same_bytes("second", results[1].codes, result.second));
            EXPECT_TRUE(same_bytes("second's scales", results[1].scales, result.second_scales));
            EXPECT_EQ(result.stats.elements, 2 * shape.first * shape.second);
            EXPECT_EQ(result.stats.saturated,
                      results[0].stats.saturated + results[1].stats.saturated);
            EXPECT_EQ(result.stats.underflowed,
                      results[0].stats.underflowed + results[1].stats.underflowed);
        }
    }
}

// Where each grid has a kernel of its own, every fifth pair will do: those kernels meet every grid in quantize.cpp.
TEST_P(QuantizeBoth, EqualsTheReferenceForEveryPairOfGrids) {
    if (has_teams_of(4)) {
        GTEST_SKIP() << "skipped: " << kManyTeams;
    }
    const char* name = device().device().candidates(OpKind::quantize).items[0].name;
    const std::size_t step = std::strcmp(name, "host") == 0 ? 1 : 5;
    for (std::size_t i = 0; i < kGridRules.size(); ++i) {
        for (std::size_t j = i % step; j < kGridRules.size(); j += step) {
            for (const Extent& shape : {Extent{1, 130}, {65, 257}, {33, 300}}) {
                const HostArray source =
                    make_array(DType::fp32, shape.first * shape.second, Content::normal, 3);
                compare(case_of(source, shape, kGridRules[i], kGridRules[j]));
            }
        }
    }
}

TEST_P(QuantizeBoth, EqualsTheReferenceForAdversarialTensors) {
    if (has_teams_of(4)) {
        GTEST_SKIP() << "skipped: " << kManyTeams;
    }
    const Extent shape = {70, 150};
    const auto grid_is = [](const ScaleGrid& grid) {
        return *std::find_if(kGridRules.begin(), kGridRules.end(),
                             [&](const GridRule& kind) { return kind.grid == grid; });
    };
    for (const auto& [one, other] : {std::pair{kRowScales, kColumnScales},
                                     {kRowBlockScales, kColumnBlockScales},
                                     {kMxRowScales, kMxColumnScales},
                                     {kNvfp4Scales, kSquareBlockScales}}) {
        for (const DType from : kWideTypes) {
            if (has_teams_of(2) && from != DType::fp16) {
                continue;
            }
            for (const HostArray& source : adversarial_arrays(from, shape.first * shape.second)) {
                QuantizeCase c = case_of(source, shape, grid_is(one), grid_is(other));
                compare(c);
                c.with_stats = false;
                compare(c);
                c.stochastic = true;
                compare(c);
                c = case_of(source, shape, grid_is(other), grid_is(one));
                c.with_transposed = true;
                c.with_stats = false;
                compare(c);
            }
        }
    }
}

// Larger than one tile, and so large that codes go around the caches; not aligned, and with rows that end within a block.
TEST_P(QuantizeBoth, EqualsTheReferenceForLargeTensors) {
    if (has_teams_of(2) || has_teams_of(4)) {
        GTEST_SKIP() << "skipped: " << kManyTeams;
    }
    for (const GridRule& first : kGridRules) {
        for (const GridRule& second : kGridRules) {
            const bool is_pair = first.grid.block_rows == second.grid.block_columns &&
                                 first.grid.block_columns == second.grid.block_rows;
            if (!is_pair || first.grid.is_one()) {
                continue;
            }
            for (const auto& [rows, columns] : {Extent{1030, 1666}, {3, 40000}, {40000, 9}}) {
                QuantizeCase c =
                    case_of(make_array(DType::bf16, rows * columns, Content::normal, 6),
                            {rows, columns}, first, second);
                c.with_stats =
                    false; // as layers do it: then codes are looked up, and exponents moved
                compare(c);
                c.offset = 1;
                c.with_stats = true;
                compare(c);
            }
        }
    }
}

TEST_P(QuantizeBoth, WritesNothingOfNothing) {
    if (has_teams_of(4)) {
        GTEST_SKIP() << "skipped: " << kManyTeams;
    }
    for (const GridRule& first : kGridRules) {
        for (const GridRule& second : kGridRules) {
            for (const Extent& shape : {Extent{0, 64}, {64, 0}}) {
                compare(
                    case_of(make_array(DType::fp32, 0, Content::normal, 3), shape, first, second));
            }
        }
    }
}

MP_COMPARE_BACKENDS(QuantizeBoth);

// The second array must have a meaning, too; and it goes with neither delayed scaling nor a given amax.
TEST(QuantizeSupport, RefusesASecondArrayWithoutMeaning) {
    static numerics::DelayedState delayed;
    static float amax = 1.0F;
    static unsigned char memory[128];
    const auto is_refused_beside = [](const std::function<void(QuantizeDesc&)>& change) {
        return is_refused([&](QuantizeDesc& op) {
            op.sink.second = {memory, memory + 64, nullptr, {DType::fp8_e5m2, kColumnScales, {}}, 2,
                              4};
            change(op);
        });
    };
    EXPECT_FALSE(is_refused_beside([](QuantizeDesc&) {}));
    EXPECT_TRUE(is_refused_beside([](QuantizeDesc& op) { op.sink.second.data = nullptr; }));
    EXPECT_TRUE(is_refused_beside([](QuantizeDesc& op) { op.sink.second.rows = 4; }));
    EXPECT_TRUE(
        is_refused_beside([](QuantizeDesc& op) { op.sink.second.format.dtype = DType::bf16; }));
    EXPECT_TRUE(
        is_refused_beside([](QuantizeDesc& op) { op.sink.second.format.grid = kMxRowScales; }));
    EXPECT_TRUE(is_refused_beside([](QuantizeDesc& op) { op.sink.tracking.delayed = &delayed; }));
    EXPECT_TRUE(is_refused_beside([](QuantizeDesc& op) { op.sink.given_amax = &amax; }));
}

} // namespace
} // namespace mp::test
