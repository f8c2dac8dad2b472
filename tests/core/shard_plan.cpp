// SPDX-License-Identifier: Apache-2.0
// Shard plans: every element has one owner, cuts are at whole chunks, shares are even.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "device/ops.hpp"
#include "shard/plan.hpp"
#include "status/status.hpp"

namespace mp::test {
namespace {

using Counts = std::vector<int64_t>;

constexpr shard::ShardKind kKinds[] = {shard::ShardKind::flat, shard::ShardKind::per_parameter,
                                       shard::ShardKind::greedy};

shard::ShardPlan make(shard::ShardKind kind, int32_t ranks, const Counts& counts,
                      int64_t bucket_elements = 100000) {
    return {shard::ShardOptions{kind, ranks, bucket_elements}, {counts, {}, {}}};
}

// A parameter's slices cover it from end to end, and are those of its bucket.
void expect_covered(const shard::ShardPlan& plan, const Counts& counts) {
    for (std::size_t i = 0; i < counts.size(); ++i) {
        const auto parameter = static_cast<int32_t>(i);
        int64_t position = 0;
        for (const shard::ShardSlice& slice : plan.slices_of(parameter)) {
            EXPECT_EQ(slice.parameter, parameter);
            EXPECT_EQ(slice.start, position);
            EXPECT_EQ(slice.start % kChunkElements, 0);
            EXPECT_GT(slice.count, 0);
            position += slice.count;
        }
        EXPECT_EQ(position, counts[i]);
    }
    int64_t in_buckets = 0;
    for (const shard::ShardBucket& bucket : plan.buckets()) {
        int64_t by_rank = 0;
        for (int32_t rank = 0; rank < plan.ranks(); ++rank) {
            int64_t here = 0;
            for (const shard::ShardSlice& slice : bucket.slices_of(rank)) {
                EXPECT_EQ(slice.rank, rank);
                here += slice.count;
            }
            EXPECT_EQ(here, bucket.rank_counts[static_cast<std::size_t>(rank)]);
            by_rank += here;
        }
        EXPECT_EQ(by_rank, bucket.count());
        in_buckets += by_rank;
    }
    EXPECT_EQ(in_buckets, std::accumulate(counts.begin(), counts.end(), int64_t{0}));
}

const Counts kModels[] = {
    {},
    {0},
    {1},
    {0, 7, 0},
    {kChunkElements, kChunkElements + 1, 3 * kChunkElements - 5},
    {768 * 50257, 1024 * 768, 768, 768, 768 * 2304, 2304, 768 * 768, 768, 768 * 3072, 3072},
};

TEST(ShardPlan, CoversEveryElementOnce) {
    for (const Counts& counts : kModels) {
        for (const shard::ShardKind kind : kKinds) {
            for (const int32_t ranks : {1, 2, 3, 4, 8, 64}) {
                SCOPED_TRACE(std::to_string(static_cast<int32_t>(kind)) + " " +
                             std::to_string(ranks));
                expect_covered(make(kind, ranks, counts), counts);
            }
        }
    }
}

TEST(ShardPlan, GreedyNeverCuts) {
    const shard::ShardPlan plan = make(shard::ShardKind::greedy, 4, kModels[5]);
    for (std::size_t i = 0; i < kModels[5].size(); ++i) {
        EXPECT_EQ(plan.slices_of(static_cast<int32_t>(i)).size(), 1U);
    }
}

// Of a flat plan a rank's share of a bucket is at most one chunk from the mean.
TEST(ShardPlan, FlatIsEven) {
    const shard::ShardPlan plan = make(shard::ShardKind::flat, 8, kModels[5], int64_t{1} << 40);
    ASSERT_EQ(plan.buckets().size(), 1U);
    const shard::ShardBucket& bucket = plan.buckets()[0];
    const int64_t mean = bucket.count() / 8;
    for (const int64_t count : bucket.rank_counts) {
        EXPECT_LE(std::abs(count - mean), kChunkElements);
    }
    EXPECT_EQ(plan.elements_of(3), bucket.rank_counts[3]);
}

// Gradients of the last layers are there first.
TEST(ShardPlan, BucketsBeginWithTheLastParameter) {
    const shard::ShardPlan plan = make(shard::ShardKind::flat, 2, {10, 20, 30, 40}, 50);
    ASSERT_EQ(plan.buckets().size(), 2U);
    EXPECT_EQ(plan.buckets()[0].parameters, (std::vector<int32_t>{3, 2}));
    EXPECT_EQ(plan.buckets()[1].parameters, (std::vector<int32_t>{1, 0}));
    EXPECT_EQ(plan.bucket_of(1), 1);
    EXPECT_EQ(plan.bucket_of(2), 0);
}

TEST(ShardPlan, ABucketKnowsWhereItsParametersStand) {
    const Counts counts(50, 10);
    std::vector<int32_t> kinds;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        kinds.push_back(static_cast<int32_t>(i * i % 3)); // a bucket's parameters have gaps then
    }
    const shard::ShardPlan plan({shard::ShardKind::flat, 3, 70}, {counts, kinds, {}});
    for (int32_t i = 0; i < 50; ++i) {
        const shard::ShardBucket& bucket =
            plan.buckets()[static_cast<std::size_t>(plan.bucket_of(i))];
        EXPECT_EQ(bucket.parameters.at(bucket.place_of(i)), i);
    }
}

TEST(ShardPlan, PerParameterSpreadsSmallOnes) {
    const shard::ShardPlan plan = make(shard::ShardKind::per_parameter, 4, Counts(8, 100));
    for (int32_t rank = 0; rank < 4; ++rank) {
        EXPECT_EQ(plan.elements_of(rank), 200);
    }
}

// Rows of blocks stay together, of each parameter its own; what is smaller than a chunk of them has one owner.
TEST(ShardPlan, CutsBetweenUnits) {
    const Counts counts = {1000 * 257, 128 * 5000, 300 * 200, 7};
    const Counts units = {257, 128 * 5000 / 3, 300 * 200, 2};
    for (const shard::ShardKind kind : kKinds) {
        for (const int32_t ranks : {1, 2, 3, 8}) {
            const shard::ShardPlan plan({kind, ranks, 100000}, {counts, {}, units});
            std::size_t most = 0;
            for (int32_t i = 0; i < 4; ++i) {
                const auto at = static_cast<std::size_t>(i);
                int64_t end = 0;
                for (const shard::ShardSlice& slice : plan.slices_of(i)) {
                    EXPECT_EQ(slice.start, end);
                    EXPECT_EQ(slice.start % units[at], 0);
                    end += slice.count;
                }
                EXPECT_EQ(end, counts[at]);
                most = std::max(most, plan.slices_of(i).size());
            }
            EXPECT_EQ(plan.slices_of(2).size(), 1U);
            EXPECT_EQ(most > 1, ranks > 1 && kind != shard::ShardKind::greedy);
        }
    }
}

TEST(ShardPlan, HashTellsPlansApart) {
    std::vector<uint64_t> hashes;
    for (const shard::ShardKind kind : kKinds) {
        for (const int32_t ranks : {1, 2, 3}) {
            hashes.push_back(make(kind, ranks, kModels[4]).hash());
        }
    }
    hashes.push_back(make(shard::ShardKind::flat, 2, {kChunkElements, kChunkElements}).hash());
    hashes.push_back(make(shard::ShardKind::flat, 2, kModels[4], 10).hash()); // other buckets
    std::sort(hashes.begin(), hashes.end());
    EXPECT_EQ(std::adjacent_find(hashes.begin(), hashes.end()), hashes.end());
    EXPECT_EQ(make(shard::ShardKind::flat, 3, kModels[5]).hash(),
              make(shard::ShardKind::flat, 3, kModels[5]).hash());
}

TEST(ShardPlan, RefusesImpossibleSizes) {
    EXPECT_THROW(make(shard::ShardKind::flat, 0, {1}), Error);
    EXPECT_THROW(make(shard::ShardKind::flat, -1, {1}), Error);
    EXPECT_THROW(make(shard::ShardKind::flat, 2, {-1}), Error);
    EXPECT_THROW(make(shard::ShardKind::flat, 2, {int64_t{1} << 62, int64_t{1} << 62}), Error);
    EXPECT_THROW(make(shard::ShardKind::flat, 2, {1}, 0), Error);
}

} // namespace
} // namespace mp::test
