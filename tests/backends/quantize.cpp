// SPDX-License-Identifier: Apache-2.0
// quantize on every backend: the reference's codes, scales, amax and statistics, bit for bit, for every kind of
// block, rule and type.
#include <cmath>

#include "quantize_case.hpp"

namespace mp::test {
namespace {

using numerics::DelayedState;
using numerics::ScaleRule;

class Quantize : public BackendTest {
  protected:
    void compare(const QuantizeCase& c) { compare_quantize(device(), c); }

    // With all outputs, and with each one alone.
    void compare_outputs(QuantizeCase c) {
        for (const bool transposed : {false, true}) {
            if (transposed && c.to == DType::fp4_e2m1) {
                continue;
            }
            c.with_transposed = transposed;
            c.with_codes = true;
            compare(c);
            c.with_stats = !c.with_stats;
            c.with_codes = !transposed;
            compare(c);
        }
    }
};

TEST_P(Quantize, EqualsTheReferenceForEveryGridAndRule) {
    if (has_teams_of(4)) {
        GTEST_SKIP() << "skipped: " << kManyTeams;
    }
    for (const GridRule& kind : kGridRules) {
        for (const auto& [rows, columns] : has_teams_of(2) ? kShapesOfTeams : kShapes) {
            for (const DType to : kind.codes) {
                QuantizeCase c;
                c.source = make_array(DType::fp32, rows * columns, Content::normal, 3);
                c.rows = rows;
                c.columns = columns;
                c.to = to;
                c.grid = kind.grid;
                c.policy = kind.policy(to);
                compare_outputs(c);
            }
        }
    }
}

// Zeros, one outlier a million times the rest, subnormal numbers, infinity and NaN among them, from every type.
TEST_P(Quantize, EqualsTheReferenceForAdversarialTensors) {
    if (has_teams_of(4)) {
        GTEST_SKIP() << "skipped: " << kManyTeams;
    }
    for (const GridRule& kind : kGridRules) {
        for (const DType from : kWideTypes) {
            if (has_teams_of(2) && from != DType::fp16) {
                continue;
            }
            for (const HostArray& source : adversarial_arrays(from, 70 * 150)) {
                for (const DType to : kind.codes) {
                    QuantizeCase c;
                    c.source = source;
                    c.rows = 70;
                    c.columns = 150;
                    c.to = to;
                    c.grid = kind.grid;
                    c.policy = kind.policy(to);
                    c.with_transposed = to != DType::fp4_e2m1;
                    compare(c);
                }
            }
        }
    }
}

TEST_P(Quantize, EqualsTheReferenceForEverySize) {
    for (int64_t size = 1; size <= 130; size += has_teams_of(2) || has_teams_of(4) ? 13 : 1) {
        for (const GridRule& kind : kGridRules) {
            const DType to = kind.codes.front();
            QuantizeCase c;
            c.source = make_array(DType::bf16, 3 * size, Content::normal, 5);
            c.rows = size % 2 == 0 ? 3 : size;
            c.columns = size % 2 == 0 ? size : 3;
            c.to = to;
            c.grid = kind.grid;
            c.policy = kind.policy(to);
            c.with_transposed = size % 3 == 0 && to != DType::fp4_e2m1;
            compare(c);
        }
    }
}

// Below, above and beside what is there; zero, infinity, NaN and a negative one too.
TEST_P(Quantize, EqualsTheReferenceUnderAGivenAmax) {
    for (const GridRule& kind : kGridRules) {
        if (kind.grid != kTensorScale && kind.grid != kNvfp4Scales) {
            continue;
        }
        for (const DType to : kind.codes) {
            for (const float amax : {0.5F, 3.0F, -3.0F, 1e6F, 0.0F, HUGE_VALF, NAN}) {
                for (const bool stochastic : {false, true}) {
                    QuantizeCase c;
                    c.source = make_array(DType::fp32, 37 * 130, Content::normal, 9);
                    c.rows = 37;
                    c.columns = 130;
                    c.to = to;
                    c.grid = kind.grid;
                    c.policy = kind.policy(to);
                    c.with_given_amax = true;
                    c.given_amax = amax;
                    c.stochastic = stochastic;
                    compare_outputs(c);
                    if (kind.grid == kTensorScale) { // NVFP4 has one beside its codes
                        c.with_amax = false;
                        compare(c);
                    }
                }
            }
        }
    }
}

// Larger than one job, at addresses aligned to elements only, and so large that codes go around the caches.
TEST_P(Quantize, EqualsTheReferenceForLargeTensors) {
    if (has_teams_of(2) || has_teams_of(4)) {
        GTEST_SKIP() << "skipped: " << kManyTeams;
    }
    for (const GridRule& kind : kGridRules) {
        for (const auto& [rows, columns] :
             {Extent{1, 200000}, {700, 1030}, {150, 4230}, {40000, 9}}) {
            QuantizeCase c;
            c.source = make_array(DType::fp32, rows * columns, Content::normal, 6);
            c.rows = rows;
            c.columns = columns;
            c.to = kind.codes.front();
            c.grid = kind.grid;
            c.policy = kind.policy(c.to);
            c.with_transposed = c.to != DType::fp4_e2m1;
            c.offset = 1;
            compare(c);
            c.with_transposed = false;
            c.offset = 0;
            compare(c);
        }
    }
}

TEST_P(Quantize, EqualsTheReferenceWhereCodesGoAroundTheCaches) {
    if (has_teams_of(2) || has_teams_of(4)) {
        GTEST_SKIP() << "skipped: " << kManyTeams;
    }
    const HostArray source = make_array(DType::bf16, 2112 * 4096, Content::normal, 7);
    for (const ScaleGrid& grid : {kTensorScale, kRowScales, kSquareBlockScales}) {
        QuantizeCase c;
        c.source = source;
        c.rows = 2112;
        c.columns = 4096;
        c.to = DType::fp8_e4m3;
        c.grid = grid;
        c.policy = numerics::scale_policy(ScaleRule::current, c.to);
        compare(c);
        c.with_transposed = true;
        compare(c);
    }
}

TEST_P(Quantize, RoundsStochasticallyByTheSameBits) {
    for (const GridRule& kind : kGridRules) {
        for (const DType to : kind.codes) {
            for (const Content content : {Content::normal, Content::specials}) {
                QuantizeCase c;
                c.source = make_array(DType::fp32, 37 * 300, content, 8);
                c.rows = 37;
                c.columns = 300;
                c.to = to;
                c.grid = kind.grid;
                c.policy = kind.policy(to);
                c.stochastic = true;
                c.with_transposed = to == DType::fp8_e5m2;
                compare(c);
                c.first_element = 12345; // random bits belong to logical elements
                compare(c);
            }
        }
    }
}

// The delayed scale once its warm-up is over, the tensor's own before; its amax is a maximum over calls.
TEST_P(Quantize, FollowsADelayedScale) {
    for (const Content content : kAllContents) {
        for (const int32_t updates : {0, 3, 4}) {
            for (const float multiply : {1.0F, 37.5F, 0x1p-20F, 0x1.fffffep+127F}) {
                for (const bool transposed : {false, true}) {
                    QuantizeCase c;
                    c.source = make_array(DType::fp32, 130 * 70, content, 9);
                    c.rows = 130;
                    c.columns = 70;
                    c.to = transposed ? DType::fp8_e5m2 : DType::fp8_e4m3;
                    c.grid = kTensorScale;
                    c.policy = numerics::scale_policy(
                        transposed ? ScaleRule::current : ScaleRule::msamp, c.to);
                    c.with_delayed = true;
                    c.delayed = {multiply, 0.25F, updates, 0};
                    c.warm_up = 4;
                    c.with_transposed = transposed;
                    compare(c);
                    c.warm_up = 0;
                    compare(c);
                }
            }
        }
    }
}

// MS-AMP keeps the scale it finds where a block has no amax to follow.
TEST_P(Quantize, KeepsThePreviousScaleWhereTheRuleSaysSo) {
    for (const Content content : {Content::zeros, Content::specials, Content::normal}) {
        for (const ScaleGrid& grid : {kTensorScale, kRowScales}) {
            QuantizeCase c;
            c.source = make_array(DType::fp32, 70 * 40, content, 10);
            c.rows = 70;
            c.columns = 40;
            c.to = DType::fp8_e4m3;
            c.grid = grid;
            c.policy = numerics::scale_policy(ScaleRule::msamp, c.to);
            c.previous_scale = 0.125F;
            compare(c);
        }
    }
}

TEST_P(Quantize, TakesTensorsWithoutElements) {
    for (const GridRule& kind : kGridRules) {
        for (const auto& [rows, columns] : {Extent{0, 0}, {0, 5}, {5, 0}}) {
            QuantizeCase c;
            c.source = HostArray(DType::fp32, 0);
            c.rows = rows;
            c.columns = columns;
            c.to = kind.codes.front();
            c.grid = kind.grid;
            c.policy = kind.policy(c.to);
            compare(c);
        }
    }
}

MP_COMPARE_BACKENDS(Quantize);

// What every backend must give, by values known elsewhere.
class QuantizeValues : public BackendTest {
  protected:
    QuantizeResult run_first(const QuantizeCase& c) {
        QuantizeResult result;
        const CandidateList list = device().device().candidates(OpKind::quantize);
        EXPECT_TRUE(list.count > 0 && quantize(device(), list.items[0], c, result));
        return result;
    }
    static QuantizeCase row_of(const std::vector<float>& values, DType to) {
        QuantizeCase c;
        c.source = HostArray(DType::fp32, static_cast<int64_t>(values.size()));
        for (std::size_t i = 0; i < values.size(); ++i) {
            c.source.set(static_cast<int64_t>(i), values[i]);
        }
        c.rows = 1;
        c.columns = c.source.count;
        c.to = to;
        c.grid = kTensorScale;
        c.policy = numerics::scale_policy(ScaleRule::float64, to);
        return c;
    }
};

using Bytes = std::vector<unsigned char>;

TEST_P(QuantizeValues, FourNumbersOfTorchao) {
    QuantizeCase c = row_of({1.0F, -0.3F, 0.007F, 2.5F}, DType::fp8_e4m3);
    EXPECT_EQ(run_first(c).codes, (Bytes{0x73, 0xE5, 0x3A, 0x7E}));
    c.policy.power_of_two = true;
    const QuantizeResult result = run_first(c);
    EXPECT_EQ(result.codes, (Bytes{0x70, 0xE2, 0x36, 0x7A}));
    EXPECT_EQ(result.scale(DType::fp32, 0), 0x1p-7F);
    EXPECT_EQ(result.amax, 2.5F);
}

TEST_P(QuantizeValues, CountsWhatHappened) {
    const float infinity = numerics::float_from_bits(numerics::kFloatInfinity);
    const float nan = numerics::float_from_bits(numerics::kFloatQuietNan);
    QuantizeCase c = row_of({464.0F, 465.0F, -1e30F, 0.0F, -0.0F, 0x1p-10F, -0x1.8p-10F, 0x1p-149F,
                             infinity, -infinity, nan, 1.0F},
                            DType::fp8_e4m3);
    c.with_delayed = true;
    c.delayed = {1.0F, 2.0F, 0, 0};
    const QuantizeResult result = run_first(c);
    EXPECT_EQ(result.codes, (Bytes{0x7e, 0x7e, 0xfe, 0, 0x80, 0, 0x81, 0, 0x7f, 0xff, 0x7f, 0x38}));
    EXPECT_EQ(result.stats.elements, 12);
    EXPECT_EQ(result.stats.saturated, 2); // 464 is a tie, and rounds to 448
    EXPECT_EQ(result.stats.underflowed, 2);
    EXPECT_EQ(result.stats.non_finite, 3);
    EXPECT_EQ(result.stats.amax_bits, numerics::kFloatQuietNan);
    EXPECT_TRUE(numerics::is_nan(result.amax));
    EXPECT_TRUE(numerics::is_nan(result.delayed.amax));
    EXPECT_EQ(result.scale(DType::fp32, 0), 1.0F);
}

// The blocks of Transformer Engine's example, as one tensor with amax 10.
TEST_P(QuantizeValues, Nvfp4BlocksOfTransformerEngine) {
    std::vector<float> values(48, 0.0F);
    const float first[] = {3, 1, -.5F, .1F};
    const float second[] = {10, 5, .3F, -7};
    std::copy(first, first + 4, values.begin());
    std::copy(second, second + 4, values.begin() + 16);
    QuantizeCase c = row_of(values, DType::fp4_e2m1);
    c.grid = kNvfp4Scales;
    c.policy = numerics::scale_policy(ScaleRule::nvfp4, c.to);
    const QuantizeResult result = run_first(c);
    EXPECT_EQ(result.amax, 10.0F);
    EXPECT_EQ(result.scale(DType::fp8_e4m3, 0), 128.0F);
    EXPECT_EQ(result.scale(DType::fp8_e4m3, 1), 448.0F);
    EXPECT_EQ(result.scale(DType::fp8_e4m3, 2), 0.0F);
    // Two to a byte, the first one low: {6, 2, -1, 0} and {6, 3, 0, -4}.
    EXPECT_EQ(result.codes[0], 0x47);
    EXPECT_EQ(result.codes[1], 0x0a);
    EXPECT_EQ(result.codes[8], 0x57);
    EXPECT_EQ(result.codes[9], 0xe0);
    EXPECT_EQ(result.codes[16], 0);
}

// One block of zeros beside one with an outlier: each has its own scale.
TEST_P(QuantizeValues, BlocksDoNotSeeEachOther) {
    std::vector<float> values(256, 0.0F);
    values[130] = 448.0F * 4.0F;
    QuantizeCase c = row_of(values, DType::fp8_e4m3);
    c.grid = kRowBlockScales;
    c.policy = numerics::scale_policy(ScaleRule::deepseek, c.to);
    QuantizeResult result = run_first(c);
    EXPECT_EQ(result.scale(DType::fp32, 0), 1e-4F / 448.0F);
    EXPECT_EQ(result.scale(DType::fp32, 1), 4.0F);
    EXPECT_EQ(result.codes[130], 0x7e);
    c.policy.power_of_two = true;
    result = run_first(c);
    EXPECT_EQ(result.scale(DType::fp32, 0), 0x1p-22F);
    EXPECT_EQ(result.scale(DType::fp32, 1), 4.0F);
}

MP_ALL_BACKENDS(QuantizeValues);

TEST(QuantizeSupport, RefusesWhatHasNoMeaning) {
    static DelayedState delayed;
    EXPECT_FALSE(is_refused([](QuantizeDesc&) {}));
    EXPECT_TRUE(is_refused([](QuantizeDesc& op) { op.source.format.dtype = DType::fp8_e4m3; }));
    EXPECT_TRUE(is_refused([](QuantizeDesc& op) { op.sink.codes.format.dtype = DType::bf16; }));
    EXPECT_TRUE(is_refused([](QuantizeDesc& op) { op.source.rows = 3; }));
    EXPECT_TRUE(is_refused([](QuantizeDesc& op) { op.sink.codes.data = nullptr; }));
    EXPECT_TRUE(
        is_refused([](QuantizeDesc& op) { op.sink.codes.format.grid.dtype = DType::bf16; }));
    EXPECT_TRUE(is_refused([](QuantizeDesc& op) { op.sink.codes.format.grid.block_rows = -1; }));
    EXPECT_TRUE(is_refused(
        [](QuantizeDesc& op) { op.sink.codes.format.policy.rule = ScaleRule::mx_rceil; }));
    EXPECT_TRUE(is_refused([](QuantizeDesc& op) { op.sink.codes.format.grid = kMxRowScales; }));
    EXPECT_TRUE(is_refused([](QuantizeDesc& op) {
        op.sink.codes.format.grid = kRowScales;
        op.sink.tracking.delayed = &delayed;
    }));
    static float amax = 1.0F;
    EXPECT_FALSE(is_refused([](QuantizeDesc& op) { op.sink.given_amax = &amax; }));
    EXPECT_TRUE(is_refused([](QuantizeDesc& op) {
        op.sink.codes.format.grid = kRowScales;
        op.sink.given_amax = &amax;
    }));
    EXPECT_TRUE(is_refused([](QuantizeDesc& op) {
        op.sink.tracking.delayed = &delayed;
        op.sink.given_amax = &amax;
    }));
    EXPECT_TRUE(is_refused([](QuantizeDesc& op) {
        op.sink.codes.format.dtype = DType::fp4_e2m1;
        op.sink.transposed = op.sink.codes.data;
    }));
    EXPECT_TRUE(is_refused([](QuantizeDesc& op) { // without an amax
        op.sink.codes.format.dtype = DType::fp4_e2m1;
        op.sink.codes.format.grid = kNvfp4Scales;
        op.sink.codes.format.policy.rule = ScaleRule::nvfp4;
    }));
}

} // namespace
} // namespace mp::test
