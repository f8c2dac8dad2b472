// SPDX-License-Identifier: Apache-2.0
// Weights gathered as fp8 codes: the bits of a cast in one place, whoever owns what; one message for all scales; a byte an
// element on the wire; scales that are older than their weight are refused.
#include "shard/fp8_gather.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/core_context.hpp"
#include "numerics/philox.hpp"
#include "quant/quantize.hpp"
#include "ranks.hpp"

namespace mp::test {
namespace {

using numerics::ScaleRule;

// Across whole chunks, one that is empty, one that lies on a single rank.
const std::vector<int64_t> kCounts = {5 * kChunkElements + 7, 0, 100, 2 * kChunkElements, 1};

float value(std::size_t weight, int64_t i, float scale) {
    const uint64_t bits = numerics::splitmix64(static_cast<uint64_t>(i) ^ (uint64_t{weight} << 50));
    return scale * (static_cast<float>(bits >> 40) * 0x1p-23F - 1.0F);
}

// One rank's weights: exact slices, and full tensors for the codes.
struct Weights {
    Weights(const shard::ShardPlan& plan, int32_t rank, ScaleRule rule, float scale)
        : context(make_context()) {
        for (std::size_t w = 0; w < kCounts.size(); ++w) {
            const auto parameter = static_cast<int32_t>(w);
            const shard::ShardSlice own = plan.slice_on(parameter, rank);
            const Shape whole = {{kCounts[w]}, 1};
            const Format form = {DType::fp8_e4m3, kTensorScale,
                                 numerics::scale_policy(rule, DType::fp8_e4m3)};
            full.push_back(std::make_unique<Tensor>(context, stream(), form, whole));
            slices.push_back(own.count == 0
                                 ? nullptr
                                 : std::make_unique<Tensor>(context, stream(), DType::fp32,
                                                            Shape{{own.count}, 1}));
            for (int64_t i = 0; i < own.count; ++i) {
                static_cast<float*>(slices[w]->data())[i] = value(w, own.start + i, scale);
            }
            list.push_back({&plan.slices_of(parameter), slices[w].get(), full[w].get()});
        }
    }
    [[nodiscard]] Stream& stream() const { return context->stream(); }

    std::shared_ptr<Context> context;
    std::vector<std::unique_ptr<Tensor>> slices, full;
    std::vector<shard::Fp8Weight> list;
};

void expect_same(const Tensor& a, const Tensor& b) {
    ASSERT_EQ(a.bytes(), b.bytes());
    EXPECT_TRUE(a.count() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0) << "codes";
    EXPECT_EQ(std::memcmp(a.scales()->scale_inv->data(), b.scales()->scale_inv->data(), 4), 0);
    EXPECT_EQ(std::memcmp(a.scales()->amax->data(), b.scales()->amax->data(), 4), 0);
}

class Fp8GatherTest : public testing::TestWithParam<ScaleRule> {};

TEST_P(Fp8GatherTest, EqualsACastInOnePlace) {
    for (const float scale : {1.0F, 1e-30F, 3e4F, std::numeric_limits<float>::infinity()}) {
        std::vector<std::unique_ptr<Tensor>> expected;
        const shard::ShardPlan alone({shard::ShardKind::flat, 1, int64_t{1} << 24},
                                     {kCounts, {}, {}});
        Weights whole(alone, 0, GetParam(), scale);
        for (std::size_t w = 0; w < kCounts.size(); ++w) {
            if (whole.slices[w] != nullptr) {
                quant::quantize_tensor(whole.stream(), *whole.slices[w], *whole.full[w], nullptr);
            }
        }
        for (const shard::ShardKind kind :
             {shard::ShardKind::flat, shard::ShardKind::per_parameter}) {
            for (int32_t ranks = 1; ranks <= 5; ++ranks) {
                SCOPED_TRACE(std::to_string(ranks) + " ranks, scale " + std::to_string(scale));
                const shard::ShardPlan plan({kind, ranks, int64_t{1} << 24}, {kCounts, {}, {}});
                run_ranks(ranks, [&](Communicator& comm) {
                    Weights weights(plan, comm.rank(), GetParam(), scale);
                    shard::Fp8Scales scales;
                    scales.agree(weights.stream(), comm, weights.list);
                    shard::Fp8Gather gather(weights.stream(), comm, weights.list, scales.all());
                    gather.finish(weights.stream());
                    for (std::size_t w = 0; w < kCounts.size(); ++w) {
                        if (kCounts[w] > 0) {
                            expect_same(*whole.full[w], *weights.full[w]);
                        }
                    }
                    const auto calls = [&](CollectiveKind k) {
                        return comm.traffic().calls[static_cast<std::size_t>(k)];
                    };
                    EXPECT_EQ(calls(CollectiveKind::max_u32), 1);
                    EXPECT_EQ(calls(CollectiveKind::all_gather), 1);
                    int64_t own = 0;
                    for (std::size_t w = 0; w < kCounts.size(); ++w) {
                        own += plan.slice_on(static_cast<int32_t>(w), comm.rank()).count;
                    }
                    EXPECT_EQ(
                        comm.traffic().bytes[static_cast<std::size_t>(CollectiveKind::all_gather)],
                        own * (ranks - 1))
                        << "a byte an element";
                });
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Rules, Fp8GatherTest,
                         testing::Values(ScaleRule::current, ScaleRule::msamp));

TEST(Fp8Gather, RefusesScalesOlderThanTheWeight) {
    const shard::ShardPlan plan({shard::ShardKind::flat, 2, int64_t{1} << 24}, {kCounts, {}, {}});
    run_ranks(2, [&](Communicator& comm) {
        Weights weights(plan, comm.rank(), ScaleRule::current, 1.0F);
        shard::Fp8Scales scales;
        scales.agree(weights.stream(), comm, weights.list);
        weights.slices[0]->touch(); // somebody wrote it
        EXPECT_THROW(shard::Fp8Gather(weights.stream(), comm, weights.list, scales.all()), Error);
        EXPECT_TRUE(comm.run(comm::Barrier{}).ok());
        scales.agree(weights.stream(), comm, weights.list);
        shard::Fp8Gather gather(weights.stream(), comm, weights.list, scales.all());
        gather.finish(weights.stream());
    });
}

} // namespace
} // namespace mp::test
