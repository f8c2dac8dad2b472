// SPDX-License-Identifier: Apache-2.0
// grad_stats on every backend: a sum in double in a promised order, so the same bits everywhere.
#include <cmath>

#include "launch.hpp"

namespace mp::test {
namespace {

bool grad_stats(TestDevice& on, const Candidate& candidate, const std::vector<ParamArrays>& params,
                double& sum_squares) {
    Launch launch(on, params);
    std::size_t leaves = 1;
    while (leaves < static_cast<std::size_t>(launch.chunk_count())) {
        leaves *= 2;
    }
    const std::vector<double> garbage(leaves, -1.0);
    DeviceBytes sums(on, garbage.data(), leaves * sizeof(double));
    numerics::OptimizerState before;
    before.step = 5;
    before.sum_squares = -7.0;
    DeviceValue<numerics::OptimizerState> state(on, before);
    GradStatsDesc op{};
    op.kind = OpKind::grad_stats;
    op.table = launch.table();
    op.chunk_sums = sums.as<double>();
    op.state = state.data();
    if (!supports(on, candidate, op)) {
        return false;
    }
    run(on, candidate, op);
    const numerics::OptimizerState after = state.download();
    EXPECT_EQ(after.step, 5);
    sum_squares = after.sum_squares;
    for (std::size_t i = 0; i < params.size(); ++i) {
        EXPECT_EQ(launch.download(i).grad.bytes, params[i].grad.bytes) << "a gradient was written";
    }
    std::vector<double> scratch(leaves);
    sums.download(scratch.data()); // nothing beside it was written
    return true;
}

ParamArrays only_grad(DType dtype, int64_t count, Content content, uint64_t seed,
                      float scale_inv = 0.0F) {
    Layout layout;
    layout.grad = dtype;
    layout.scale_inv.grad = scale_inv;
    return make_param(layout, count, content, seed);
}

class GradStats : public BackendTest {
  protected:
    void compare(const std::vector<ParamArrays>& params) {
        double expected = 0.0;
        ASSERT_TRUE(grad_stats(reference_device(), reference_candidate(OpKind::grad_stats), params,
                               expected));
        const int32_t supporting =
            for_each_candidate(device(), OpKind::grad_stats, [&](const Candidate& candidate) {
                double result = 0.0;
                if (!grad_stats(device(), candidate, params, result)) {
                    return false;
                }
                if (std::isnan(expected)) {
                    EXPECT_TRUE(std::isnan(result)) << result;
                } else {
                    EXPECT_EQ(numerics::bits_from_double(result),
                              numerics::bits_from_double(expected))
                        << result << " instead of " << expected;
                }
                return true;
            });
        EXPECT_GT(supporting, 0);
    }
};

TEST_P(GradStats, EqualsTheReferenceForEverySizeAndContent) {
    compare({});
    for (const DType dtype : kWideTypes) {
        for (const int64_t count : kSizes) {
            SCOPED_TRACE(std::string(dtype_name(dtype)) + ", " + std::to_string(count) +
                         " elements");
            compare({only_grad(dtype, count, Content::normal, 31)});
        }
        for (const Content content : kAllContents) {
            SCOPED_TRACE(content_name(content));
            compare({only_grad(dtype, kLargestOfMany, content, 32)});
        }
    }
}

// A scale that is no power of two shows that code * scale_inv is rounded to fp32 first.
TEST_P(GradStats, EqualsTheReferenceForScaledGradients) {
    for (const DType dtype : {DType::fp16, DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2}) {
        for (const float scale : {0x1p-11F, 0.3F}) {
            for (const int64_t count : kSizes) {
                SCOPED_TRACE(std::string(dtype_name(dtype)) + ", " + std::to_string(count) +
                             " elements");
                compare({only_grad(dtype, count, Content::normal, 41, scale)});
            }
            for (const Content content : kAllContents) {
                SCOPED_TRACE(content_name(content));
                compare({only_grad(dtype, kLargestOfMany, content, 42, scale)});
            }
        }
    }
}

TEST_P(GradStats, EqualsTheReferenceForManySegmentsInOneLaunch) {
    for (const std::size_t segments : {2U, 3U, 9U, 40U}) {
        std::vector<ParamArrays> params;
        for (std::size_t i = 0; i < segments; ++i) {
            params.push_back(only_grad(kWideTypes[i % 3], kSizes[i % 10], Content::normal, i));
            params.back().offset = static_cast<int64_t>(i % 4);
        }
        SCOPED_TRACE(std::to_string(segments) + " segments");
        compare(params);
    }
}

MP_COMPARE_BACKENDS(GradStats);

class GradStatsValues : public BackendTest {
  protected:
    double stats(const std::vector<ParamArrays>& params) {
        double result = 0.0;
        EXPECT_TRUE(grad_stats(device(), device().device().candidates(OpKind::grad_stats).items[0],
                               params, result));
        return result;
    }
};

TEST_P(GradStatsValues, IsTheSumOfSquares) {
    EXPECT_EQ(stats({}), 0.0);
    for (const DType dtype : kWideTypes) {
        const ParamArrays a = only_grad(dtype, 40000, Content::small_integers, 33);
        const ParamArrays b = only_grad(dtype, 777, Content::small_integers, 34);
        double expected = 0.0; // small integers: exact in any order
        for (const ParamArrays* arrays : {&a, &b}) {
            for (int64_t i = 0; i < arrays->count(); ++i) {
                const double g = static_cast<double>(arrays->grad.get(i));
                expected += g * g;
            }
        }
        EXPECT_EQ(stats({a, b}), expected);
    }
}

TEST_P(GradStatsValues, ScaledGradientsAreCodesTimesTheirScale) {
    for (const DType dtype : {DType::fp16, DType::fp8_e4m3, DType::fp8_e5m2}) {
        const ParamArrays arrays = only_grad(dtype, 40000, Content::small_integers, 43, 0x1p-6F);
        double expected = 0.0;
        for (int64_t i = 0; i < arrays.count(); ++i) {
            const double g = static_cast<double>(arrays.grad.get(i)) * 0x1p-6;
            expected += g * g;
        }
        EXPECT_EQ(stats({arrays}), expected);
    }
}

// Where every lane of every block matters: the order written out for one chunk and a bit.
TEST_P(GradStatsValues, FollowsTheWrittenOrder) {
    const ParamArrays arrays = only_grad(DType::fp32, kChunkElements + 3000, Content::normal, 35);
    const auto square = [&](int64_t i) {
        const double g = static_cast<double>(arrays.grad.get(i));
        return i < arrays.count() ? g * g : 0.0;
    };
    const auto tree = [](std::vector<double> values) {
        while (values.size() > 1) {
            std::vector<double> half(values.size() / 2);
            for (std::size_t i = 0; i < half.size(); ++i) {
                half[i] = values[2 * i] + values[2 * i + 1];
            }
            values = half;
        }
        return values[0];
    };
    std::vector<double> chunks;
    for (int64_t chunk = 0; chunk < 2; ++chunk) {
        std::vector<double> blocks;
        for (int64_t block = 0; block < kChunkElements / kStatsBlock; ++block) {
            std::vector<double> lanes(static_cast<std::size_t>(kStatsLanes), 0.0);
            const int64_t start = chunk * kChunkElements + block * kStatsBlock;
            for (int64_t i = 0; i < kStatsBlock && start + i < arrays.count(); ++i) {
                lanes[static_cast<std::size_t>(i % kStatsLanes)] += square(start + i);
            }
            blocks.push_back(tree(lanes));
        }
        chunks.push_back(tree(blocks));
    }
    EXPECT_EQ(stats({arrays}), tree(chunks));
}

// A sum of squares in double of finite fp32 numbers is finite: it alone tells whether all were.
TEST_P(GradStatsValues, TellsWhetherAllGradientsWereFinite) {
    ParamArrays arrays = only_grad(DType::fp32, 50000, Content::zeros, 36);
    for (int64_t i = 0; i < arrays.count(); ++i) {
        arrays.grad.set(i, 0x1.fffffep+127F);
    }
    EXPECT_TRUE(std::isfinite(stats({arrays})));
    for (const int64_t at : {0, 2047, 16384, 49999}) {
        ParamArrays bad = only_grad(DType::bf16, 50000, Content::normal, 37);
        bad.grad.set(at, numerics::float_from_bits(numerics::kFloatInfinity));
        EXPECT_FALSE(std::isfinite(stats({bad, arrays})));
        bad.grad.set(at, numerics::float_from_bits(numerics::kFloatQuietNan));
        EXPECT_FALSE(std::isfinite(stats({arrays, bad})));
    }
}

MP_ALL_BACKENDS(GradStatsValues);

} // namespace
} // namespace mp::test
