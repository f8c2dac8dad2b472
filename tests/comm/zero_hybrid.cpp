// SPDX-License-Identifier: Apache-2.0
// Hybrid sharding: groups of ranks hold a copy of the shards each, and replicas have the same bits, which are those of
// ranks without groups where the order promises it.
#include "zero.hpp"

#include <gtest/gtest.h>

#include <mutex>

namespace mp::test {
namespace {

struct Layout {
    int32_t ranks;
    int32_t shard_ranks;
    [[nodiscard]] int32_t groups() const { return ranks / shard_ranks; }
    [[nodiscard]] std::string text() const {
        return std::to_string(ranks) + " ranks in groups of " + std::to_string(shard_ranks);
    }
};

Training training_of(const char* recipe, int32_t stage, int32_t shard_ranks,
                     shard::ShardKind kind = shard::ShardKind::flat) {
    Training run;
    run.recipe = recipe::find_preset(recipe).recipe;
    run.sharding.stage = stage;
    run.sharding.shard_ranks = shard_ranks;
    run.sharding.kind = kind;
    run.sharding.bucket_elements = 60000;
    return run;
}

void expect_all_same(const Outcome& expected, const std::vector<Outcome>& actual) {
    for (std::size_t rank = 0; rank < actual.size(); ++rank) {
        SCOPED_TRACE("rank " + std::to_string(rank));
        expect_same(expected, actual[rank]);
    }
}

int64_t elements() {
    int64_t count = 0;
    for (const Shape& shape : model()) {
        count += shape.count();
    }
    return count;
}

// For fixed ranks and groups, whatever the stage, the plan, and when buckets leave.
TEST(ZeroHybrid, ReplicasStagesAndPlansHaveTheSameBits) {
    for (const Layout layout : {Layout{4, 2}, Layout{6, 3}, Layout{3, 1}}) {
        for (const char* recipe : {"fp32", "bf16_pure_sr", "bf16_mixed"}) {
            const std::vector<Outcome> expected =
                train(layout.ranks, training_of(recipe, 1, layout.shard_ranks));
            expect_all_same(expected[0], expected);
            for (const int32_t stage : {1, 2, 3}) {
                for (const shard::ShardKind kind :
                     {shard::ShardKind::flat, shard::ShardKind::per_parameter,
                      shard::ShardKind::greedy}) {
                    SCOPED_TRACE(layout.text() + ", " + recipe + ", stage " +
                                 std::to_string(stage));
                    expect_all_same(expected[0],
                                    train(layout.ranks,
                                          training_of(recipe, stage, layout.shard_ranks, kind),
                                          stage != 1));
                }
            }
        }
    }
}

TEST(ZeroHybrid, StageZeroAddsInTwoLevelsToo) {
    const std::vector<Outcome> expected = train(4, training_of("fp32", 1, 2));
    expect_all_same(expected[0], train(4, training_of("fp32", 0, 2)));
}

// One group is no group.
TEST(ZeroHybrid, AllRanksInOneGroupAreTheOrdinaryLayout) {
    const std::vector<Outcome> expected = train(3, training_of("fp32", 1, 0));
    expect_all_same(expected[0], train(3, training_of("fp32", 1, 3)));
}

// The tree over eight slots: groups whose slots are 4 or 2 are subtrees of it and add in two levels; the others (6 ranks
// in groups of 2; 8 ranks in groups of 8 / 3 cannot be) send every contribution to every group. Exact always does.
TEST(ZeroHybrid, TreeAndExactDoNotSeeTheGroups) {
    for (const comm::SumOrder order : {comm::SumOrder::tree, comm::SumOrder::exact}) {
        Training run = training_of("bf16_pure_sr", 1, 0);
        run.slots = run.sharding.slots = 8;
        run.sharding.order = order;
        run.sharding.wire = comm::wire_format(DType::bf16);
        const Outcome expected = train(1, run)[0];
        for (const Layout layout : {Layout{2, 1}, Layout{4, 2}, Layout{6, 3}, Layout{6, 2},
                                    Layout{8, 4}, Layout{8, 2}, Layout{3, 1}}) {
            for (const int32_t stage : {1, 2}) {
                SCOPED_TRACE(layout.text() + ", order " + comm::order_name(order));
                run.sharding.shard_ranks = layout.shard_ranks;
                run.sharding.stage = stage;
                expect_all_same(expected, train(layout.ranks, run, stage == 2));
            }
        }
    }
}

TEST(ZeroHybrid, OneRanksInfinitySkipsTheStepEverywhere) {
    const Training run = training_of("bf16_pure_kahan", 2, 2);
    train_ranks(4, run, [](TestModel& test_model) {
        test_model.optimizer().shard(test_model.stream());
        test_model.backward(0, false);
        test_model.optimizer().step(test_model.stream(), nullptr);
        const Outcome before = test_model.outcome();
        test_model.backward(1, false, test_model.comm().rank() == 3);
        test_model.optimizer().step(test_model.stream(), nullptr);
        const Outcome after = test_model.outcome();
        EXPECT_EQ(after.params, before.params);
        EXPECT_EQ(after.state.step, 1);
        EXPECT_EQ(after.state.skipped_steps, 1);
    });
}

// A rank has what its place in its group has, exactly as planned.
TEST(ZeroHybrid, HoldsWhatThePlanSays) {
    for (const Layout layout : {Layout{4, 2}, Layout{2, 1}}) {
        for (int32_t stage = 0; stage <= 3; ++stage) {
            const Training run = training_of("bf16_mixed", stage, layout.shard_ranks);
            train_ranks(layout.ranks, run, [&](TestModel& test_model) {
                test_model.optimizer().shard(test_model.stream());
                const optim::MemoryReport held = test_model.optimizer().parameters().memory();
                const optim::MemoryReport planned =
                    optim::planned_memory(run.recipe, planned_model(), {.sharding = run.sharding},
                                          {test_model.comm().rank(), layout.ranks});
                EXPECT_EQ(held.weight, planned.weight) << layout.text() << stage;
                EXPECT_EQ(held.of(numerics::StateId::exp_avg),
                          planned.of(numerics::StateId::exp_avg))
                    << layout.text() << stage;
                EXPECT_EQ(held.reduced_grad, planned.reduced_grad) << layout.text() << stage;
                EXPECT_EQ(held.total(), planned.total()) << layout.text() << stage;
            });
        }
    }
}

// All ranks together, n elements on G groups of S, in fp32: G (S-1) n into the groups' sums and as many weights back;
// between groups (G-1) n to add and (G-1) n to share. EXACT sends G (GS - 1) n instead of the first and the last two.
TEST(ZeroHybrid, WireBytesAreTheFormulas) {
    for (const comm::SumOrder order : {comm::SumOrder::rank, comm::SumOrder::exact}) {
        const Layout layout = {4, 2};
        Training run = training_of("fp32", 1, layout.shard_ranks);
        run.sharding.order = order;
        run.max_grad_norm = 0.0;
        int64_t sent = 0;
        std::mutex mutex;
        train_ranks(layout.ranks, run, [&](TestModel& test_model) {
            test_model.optimizer().shard(test_model.stream());
            test_model.backward(0, false);
            const comm::Traffic before = test_model.optimizer().sharding()->groups().traffic();
            test_model.optimizer().step(test_model.stream(), nullptr);
            const comm::Traffic after = test_model.optimizer().sharding()->groups().traffic();
            const auto of = [&](CollectiveKind kind) {
                const auto i = static_cast<std::size_t>(kind);
                return after.bytes[i] - before.bytes[i];
            };
            const auto agreements = static_cast<std::size_t>(CollectiveKind::max_u32);
            if (order == comm::SumOrder::rank) {
                EXPECT_EQ(after.calls[agreements] - before.calls[agreements], 1)
                    << "one agreement a step";
            }
            const std::lock_guard lock(mutex);
            sent += of(CollectiveKind::all_to_all) + of(CollectiveKind::all_gather);
        });
        const int64_t inside = layout.groups() * (layout.shard_ranks - 1);
        const int64_t units = order == comm::SumOrder::exact
                                  ? layout.groups() * (layout.ranks - 1) + inside
                                  : 2 * inside + 2 * (layout.groups() - 1);
        const double expected = 4.0 * static_cast<double>(units * elements());
        EXPECT_GE(static_cast<double>(sent), expected);
        EXPECT_LE(static_cast<double>(sent), 1.01 * expected);
    }
}

TEST(ZeroHybrid, GroupsThatCannotBeAreRefused) {
    shard::ShardingOptions options;
    for (const int32_t shard_ranks : {-1, 3, 8}) {
        options.shard_ranks = shard_ranks;
        try {
            shard::check_sharding(options, 4);
            FAIL() << shard_ranks;
        } catch (const Error& error) {
            EXPECT_EQ(error.status().code(), Code::invalid_argument);
            EXPECT_NE(
                std::string(error.what()).find("shard_ranks is " + std::to_string(shard_ranks)),
                std::string::npos);
        }
    }
}

} // namespace
} // namespace mp::test
