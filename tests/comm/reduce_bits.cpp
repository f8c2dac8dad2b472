// SPDX-License-Identifier: Apache-2.0
// Which bits of a reduction are promised: those that neither threads, backends, buckets nor the number of ranks change.
#include <gtest/gtest.h>

#include "reduce_case.hpp"

namespace mp::test {
namespace {

TEST(ReduceBits, DoesNotDependOnThreadsBackendsOrBuckets) {
    for (const Format& format : kWireFormats) {
        ReduceCase run;
        run.desc.wire = format;
        run.total = 40000;
        run.source = DType::bf16;
        const Values once = reduced(run, 3);
        run.threads = 3;
        EXPECT_EQ(reduced(run, 3), once) << comm::wire_text(format);
        run.backend = "reference";
        run.threads = 1;
        EXPECT_EQ(reduced(run, 3), once) << comm::wire_text(format);
        if (comm::wire_scale(format) == WireScale::tensor) {
            continue; // a scale for each message
        }
        run.backend = "host";
        for (const int64_t bucket : {int64_t{1280}, int64_t{16384}}) {
            Values joined(run.result, once.count);
            for (int64_t first = 0; first < once.count; first += bucket) {
                ReduceCase part = run;
                part.desc.rounding.first_element = first;
                part.total = std::min(bucket, once.count - first);
                const Values here = reduced(part, 3);
                std::copy(here.bytes.begin(), here.bytes.end(),
                          joined.bytes.begin() + static_cast<std::ptrdiff_t>(4 * first));
            }
            EXPECT_EQ(joined, once) << comm::wire_text(format) << ", buckets of " << bucket;
        }
    }
}

constexpr int64_t kSizes[] = {0, 1, 7, 127, 128, 129, 16385};

class ForEveryNumberOfRanks : public ::testing::TestWithParam<SumOrder> {};

TEST_P(ForEveryNumberOfRanks, GivesTheSameBits) {
    for (const Format& format : {kFp32, kBf16, kFp16, kBlocks, kMx}) {
        for (const int32_t slots : {8, 11}) {
            ReduceCase run;
            run.desc.wire = format;
            run.desc.order = GetParam();
            run.desc.slots = slots;
            run.total = 3000;
            run.source = DType::fp32;
            const Values alone = reduced(run, 1);
            for (const int32_t ranks : {2, 3, 4, 5, 6, 7, 8}) {
                run.threads = ranks == 3 ? 2 : 1;
                EXPECT_EQ(reduced(run, ranks), alone)
                    << comm::wire_text(format) << ", " << ranks << " ranks, " << slots << " slots";
            }
        }
    }
    ReduceCase few; // more ranks than slots: some contribute nothing, and get their share
    few.desc.wire = kBf16;
    few.desc.order = GetParam();
    few.desc.slots = 3;
    few.total = 1000;
    EXPECT_EQ(reduced(few, 5), reduced(few, 1));
    EXPECT_EQ(reduced(few, 7), reduced(few, 2));

    ReduceCase run; // elements that begin anywhere, shares of any size, results that are rounded
    run.desc.wire = kBf16;
    run.desc.order = GetParam();
    run.desc.slots = 6;
    run.desc.rounding.first_element = 77;
    run.result = DType::bf16;
    for (const int64_t total : kSizes) {
        run.total = total;
        run.counts = {total};
        const Values alone = reduced(run, 1);
        const int64_t third = total / 3;
        run.counts = {third, 0, total - third - third / 2, third / 2};
        EXPECT_EQ(reduced(run, 4), alone) << total;
    }
}

std::string order_label(const ::testing::TestParamInfo<SumOrder>& info) {
    return comm::order_name(info.param);
}

INSTANTIATE_TEST_SUITE_P(Orders, ForEveryNumberOfRanks,
                         ::testing::Values(SumOrder::tree, SumOrder::exact), order_label);

// The order of ranks is another one for another number of them: the promise above is not empty.
TEST(ReduceBits, ByRankDependsOnTheNumberOfRanks) {
    ReduceCase run;
    run.desc.wire = kFp32;
    run.desc.order = SumOrder::tree;
    run.desc.slots = 8;
    run.total = 3000;
    const Values tree = reduced(run, 8);
    run.desc.order = SumOrder::rank;
    run.desc.slots = 0;
    EXPECT_NE(reduced(run, 8), tree);
}

TEST(SubtreesOfSlots, AreMaximalAndMergeToTheTree) {
    using comm::SlotRun;
    EXPECT_EQ(comm::subtrees_of({0, 8}, 8), (std::vector<SlotRun>{{0, 8}}));
    EXPECT_EQ(comm::subtrees_of({2, 5}, 8), (std::vector<SlotRun>{{2, 4}, {4, 5}}));
    EXPECT_EQ(comm::subtrees_of({3, 3}, 8), (std::vector<SlotRun>{}));
    EXPECT_EQ(comm::subtrees_of({4, 5}, 5), (std::vector<SlotRun>{{4, 5}}));
    std::size_t most = 0;
    for (const int32_t ranks : {3, 5}) {
        for (int32_t r = 0; r < ranks; ++r) {
            most = std::max(most, comm::subtrees_of(comm::slots_of(r, ranks, 64), 64).size());
        }
    }
    EXPECT_EQ(most, 5U);
    const std::vector<SlotRun> leaves = {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}};
    EXPECT_EQ(comm::tree_merges(leaves, {0, 5}, 5), (std::vector<int32_t>{0, 1, 0, 2, 1}));
    EXPECT_THROW((void)comm::tree_merges({leaves.data(), 4}, {0, 5}, 5), Error);
}

} // namespace
} // namespace mp::test
