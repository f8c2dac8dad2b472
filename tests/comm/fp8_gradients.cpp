// SPDX-License-Identifier: Apache-2.0
// E4M3 gradients with a shared scale over thread ranks: FP8-LM's published examples, and mu over steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "comm/fp8_gradients.hpp"
#include "rank_device.hpp"
#include "ranks.hpp"
#include "shard/greedy.hpp"

namespace mp::test {
namespace {

using comm::Fp8GradientReducer;
using comm::Fp8Slice;
using comm::WireSource;
using Codes = std::vector<uint8_t>;

Values floats(const std::vector<float>& values) {
    Values array(DType::fp32, static_cast<int64_t>(values.size()));
    std::memcpy(array.bytes.data(), values.data(), array.bytes.size());
    return array;
}

TEST(Fp8Gradients, PublishedCoherentGradients) {
    const struct {
        float mu;
        float multiply;
        Codes codes;
        int64_t largest;
    } rows[] = {
        {1.0F, 8.0F, {0x60, 0xD8, 0x50, 0x7E}, 1},
        {0.5F, 4.0F, {0x58, 0xD0, 0x48, 0x7E}, 1},
        {0.25F, 2.0F, {0x50, 0xC8, 0x40, 0x7E}, 1},
        {0.125F, 1.0F, {0x48, 0xC0, 0x38, 0x76}, 0},
    };
    for (const auto& row : rows) {
        run_ranks(4, [&](Communicator& comm) {
            const auto stream = make_stream();
            Values gradient = floats({1.0F, -0.5F, 0.25F, 56.0F});
            Codes codes(4);
            Fp8GradientReducer reducer(comm, *stream, 1, {Fp8Slice{0, 2, 0, 4, codes.data()}});
            reducer.set_mu(0, row.mu);
            const WireSource from = {gradient.ref(), nullptr};
            reducer.reduce({&from, 1});
            EXPECT_EQ(reducer.scale_inv(0), 1.0F / row.multiply);
            EXPECT_EQ(codes, comm.rank() == 2 ? row.codes : Codes(4));
            EXPECT_EQ(reducer.saturated(0), comm.rank() == 2 ? row.largest : 0);
            EXPECT_EQ(comm.traffic().calls[static_cast<std::size_t>(CollectiveKind::max_u32)], 1);
            EXPECT_EQ(comm.traffic().bytes[static_cast<std::size_t>(CollectiveKind::all_to_all)],
                      comm.rank() == 2 ? 0 : 4);
        });
    }
}

// The amax of the largest rank is everybody's, and the smallest of the ranks' own scales is the same scale.
TEST(Fp8Gradients, ShareTheLargestAmax) {
    run_ranks(3, [](Communicator& comm) {
        const auto stream = make_stream();
        const float own[] = {3.0F, 449.0F, 1e-3F};
        Values first = floats({own[comm.rank()], 1.0F});
        Values second = floats({0.0F, 0.0F, 0.0F});
        Codes codes(5);
        Fp8GradientReducer reducer(comm, *stream, 2,
                                   {{0, 0, 0, 1, codes.data()},
                                    {0, 1, 1, 1, codes.data()},
                                    {1, 1, 0, 3, codes.data() + 1}});
        const std::vector<WireSource> from = {{first.ref(), nullptr}, {second.ref(), nullptr}};
        reducer.reduce(from);
        EXPECT_EQ(reducer.scale_inv(0), 2.0F);
        EXPECT_EQ(reducer.scale_inv(1), 1.0F) << "nothing but zeros: kept";
        if (comm.rank() == 0) { // 1.5 + 224.5 (224) + 0.0005 (0) = 225.5, to 224
            EXPECT_EQ(codes[0], numerics::float_to_e4m3_sat(224.0F));
        } else if (comm.rank() == 1) { // 3 * 0.5
            EXPECT_EQ(codes, (Codes{numerics::float_to_e4m3_sat(1.5F), 0, 0, 0, 0}));
        }
    });
}

// Coherent gradients on whole tensors shared out greedily: mu comes down to 1/N by itself, and grows again.
TEST(Fp8Gradients, FindMu) {
    const std::vector<int64_t> counts = {1000, 17, 600};
    constexpr int32_t kRanks = 4;
    const shard::GreedyPlan plan = shard::assign_greedily(counts, kRanks);
    run_ranks(kRanks, [&](Communicator& comm) {
        const auto stream = make_stream();
        std::vector<Values> gradients;
        std::vector<Codes> codes;
        std::vector<Fp8Slice> slices;
        std::vector<WireSource> from;
        for (std::size_t t = 0; t < counts.size(); ++t) {
            gradients.emplace_back(DType::fp32, counts[t]);
            for (int64_t i = 0; i < counts[t]; ++i) { // near the largest code of every rank
                gradients[t].set(i, t == 1 ? 0.001F : 440.0F);
            }
            codes.emplace_back(static_cast<std::size_t>(counts[t]));
            slices.push_back(
                {static_cast<int32_t>(t), plan.owner[t], 0, counts[t], codes[t].data()});
        }
        for (Values& gradient : gradients) {
            from.push_back({gradient.ref(), nullptr});
        }
        Fp8GradientReducer reducer(comm, *stream, 3, slices);
        for (int step = 0; step < 4; ++step) {
            reducer.reduce(from);
        }
        EXPECT_EQ(reducer.mu(0), 0.125F);
        EXPECT_EQ(reducer.mu(2), 0.125F);
        for (std::size_t t = 0; t < counts.size(); ++t) {
            if (plan.owner[t] != comm.rank()) {
                continue;
            }
            const float mean = numerics::e4m3_to_float(codes[t][0]) *
                               reducer.scale_inv(static_cast<int32_t>(t)) / kRanks;
            const float exact = gradients[t].get(0);
            EXPECT_NEAR(mean, exact, 0.07F * exact) << "tensor " << t;
        }
        reducer.reduce(from);
        EXPECT_GT(reducer.mu(0), 0.125F) << "nothing saturated";
    });
}

TEST(Fp8Gradients, KeepTheirScaleWhereOneRankIsNotFinite) {
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
        run_ranks(3, [&](Communicator& comm) {
            const auto stream = make_stream();
            Values gradient = floats({8.0F, -2.0F, 1.0F});
            Codes codes(3);
            Fp8GradientReducer reducer(comm, *stream, 1, {Fp8Slice{0, 1, 0, 3, codes.data()}});
            const WireSource from = {gradient.ref(), nullptr};
            reducer.reduce({&from, 1});
            const float scale = reducer.scale_inv(0);
            const float mu = reducer.mu(0);
            gradient.set(2, comm.rank() == 2 ? bad : 1.0F);
            reducer.reduce({&from, 1});
            EXPECT_FALSE(reducer.is_finite(0)) << "on every rank";
            EXPECT_EQ(reducer.scale_inv(0), scale);
            const float after = reducer.mu(0);
            EXPECT_NE(after, mu) << "of the step before";
            if (comm.rank() == 1) {
                EXPECT_EQ(codes[2] & 0x7FU, numerics::kE4m3Nan);
                EXPECT_NE(codes[0] & 0x7FU, numerics::kE4m3Nan);
            }
            gradient.set(2, 1.0F);
            reducer.reduce({&from, 1});
            EXPECT_TRUE(reducer.is_finite(0));
            EXPECT_EQ(reducer.mu(0), after) << "what was not finite says nothing about mu";
        });
    }
}

TEST(Fp8Gradients, RefuseWrongSlices) {
    run_ranks(2, [](Communicator& comm) {
        const auto stream = make_stream();
        Codes codes(4);
        const auto make = [&](const Fp8Slice& slice) {
            return Fp8GradientReducer(comm, *stream, 1, {slice});
        };
        EXPECT_THROW((void)make({1, 0, 0, 4, codes.data()}), Error);
        EXPECT_THROW((void)make({0, 2, 0, 4, codes.data()}), Error);
        EXPECT_THROW((void)make({0, 0, -1, 4, codes.data()}), Error);
        EXPECT_THROW((void)make({0, comm.rank(), 0, 4, nullptr}), Error);
        Fp8GradientReducer reducer = make({0, 0, 0, 4, codes.data()});
        Values gradient = floats({1.0F, 2.0F});
        const WireSource from = {gradient.ref(), nullptr};
        EXPECT_THROW(reducer.reduce({&from, 1}), Error);
        EXPECT_THROW(reducer.reduce({}), Error);
        EXPECT_THROW(reducer.set_mu(0, 4.0F), Error);
        EXPECT_EQ(comm.sequence(), 0U);
    });
}

} // namespace
} // namespace mp::test
