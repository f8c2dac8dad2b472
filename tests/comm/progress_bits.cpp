// SPDX-License-Identifier: Apache-2.0
// The thread that moves messages between the calls changes no bit: in any stage, wire, order, groups or nodes.
#include <gtest/gtest.h>

#include "progress_training.hpp"

namespace mp::test {
namespace {

// Steps in which everything that can be under way is left to the thread.
std::vector<Outcome> train_patiently(int32_t ranks, const Training& run) {
    std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
    train_ranks(ranks, run, [&](TestModel& test_model) {
        test_model.optimizer().shard(test_model.stream());
        for (int32_t step = 0; step < run.steps; ++step) {
            gather_all(test_model); // for the forward pass, where there is anything to gather
            EXPECT_TRUE(compute_until([&] { return all_finished(test_model); }));
            test_model.backward(step, true);
            EXPECT_TRUE(compute_until([&] { return all_finished(test_model); }));
            test_model.optimizer().step(test_model.stream(), nullptr);
        }
        outcomes[static_cast<std::size_t>(test_model.comm().rank())] = test_model.outcome();
    });
    return outcomes;
}

TEST(ProgressBits, ChangesNoBit) {
    for (const char* recipe : {"fp32", "bf16_pure_kahan", "bf16_mixed"}) {
        for (int32_t stage = 0; stage <= 3; ++stage) {
            SCOPED_TRACE(std::string(recipe) + ", stage " + std::to_string(stage));
            Training run = training_of(stage, recipe);
            run.sharding.progress_thread = false;
            const std::vector<Outcome> expected = train(3, run, true);
            run.sharding.progress_thread = true;
            const std::vector<Outcome> hasty = train(3, run, true);
            const std::vector<Outcome> patient = train_patiently(3, run);
            for (std::size_t rank = 0; rank < expected.size(); ++rank) {
                expect_same(expected[rank], hasty[rank]);
                expect_same(expected[rank], patient[rank]);
            }
        }
    }
}

TEST(ProgressBits, ChangesNoBitOfOtherWiresAndOrders) {
    for (const Format& wire : {comm::wire_format(DType::bf16),
                               comm::wire_format(DType::fp8_e4m3, comm::WireScale::block),
                               comm::wire_format(DType::fp8_e5m2, comm::WireScale::mx)}) {
        for (const comm::SumOrder order :
             {comm::SumOrder::rank, comm::SumOrder::tree, comm::SumOrder::exact}) {
            SCOPED_TRACE(comm::wire_text(wire) + ", order " + comm::order_name(order));
            Training run = training_of(1, "fp32");
            run.sharding.wire = wire;
            run.sharding.order = order;
            run.slots = run.sharding.slots = comm::has_slots(order) ? 7 : 0;
            run.sharding.progress_thread = false;
            const std::vector<Outcome> expected = train(3, run, true);
            run.sharding.progress_thread = true;
            const std::vector<Outcome> actual = train_patiently(3, run);
            for (std::size_t rank = 0; rank < expected.size(); ++rank) {
                expect_same(expected[rank], actual[rank]);
            }
        }
    }
}

// The sums of groups and of nodes are a message more, which the thread begins, and not at the same time on every rank.
TEST(ProgressBits, ChangesNoBitOfGroupsAndNodes) {
    for (const bool has_nodes : {false, true}) {
        for (int32_t stage = 0; stage <= 3; ++stage) {
            for (const comm::SumOrder order :
                 {comm::SumOrder::rank, comm::SumOrder::tree, comm::SumOrder::exact}) {
                if (has_nodes && comm::has_slots(order)) {
                    continue;
                }
                SCOPED_TRACE(std::string(has_nodes ? "nodes" : "groups") + " of 2, stage " +
                             std::to_string(stage) + ", order " + comm::order_name(order));
                Training run = training_of(stage);
                (has_nodes ? run.sharding.node_ranks : run.sharding.shard_ranks) = 2;
                run.sharding.order = order;
                run.sharding.progress_thread = false;
                const std::vector<Outcome> expected = train(4, run, true);
                run.sharding.progress_thread = true;
                const std::vector<Outcome> hasty = train(4, run, true);
                const std::vector<Outcome> patient = train_patiently(4, run);
                for (std::size_t rank = 0; rank < expected.size(); ++rank) {
                    expect_same(expected[rank], hasty[rank]);
                    expect_same(expected[rank], patient[rank]);
                }
            }
        }
    }
}

// Both ways to say that a slot's gradients are there, after each other.
TEST(ProgressBits, ASlotThatIsReadyIsNotSentTwice) {
    Training run = training_of(1, "fp32");
    run.slots = run.sharding.slots = 6;
    run.sharding.order = comm::SumOrder::tree;
    const std::vector<Outcome> expected = train(2, run);
    std::vector<Outcome> outcomes(2);
    train_ranks(2, run, [&](TestModel& test_model) {
        test_model.optimizer().shard(test_model.stream());
        for (int32_t step = 0; step < run.steps; ++step) {
            const comm::SlotRun slots = comm::slots_of(test_model.comm().rank(), 2, run.slots);
            for (int32_t slot = slots.first; slot < slots.end; ++slot) {
                for (std::size_t p = model().size(); p-- > 0;) {
                    test_model.write_gradient(p, slot, step);
                }
                for (std::size_t p = model().size(); p-- > static_cast<std::size_t>(slot % 7);) {
                    test_model.optimizer().sharding()->grad_ready(test_model.stream(),
                                                                  static_cast<int32_t>(p));
                }
                test_model.optimizer().sharding()->end_microbatch(test_model.stream());
            }
            test_model.optimizer().step(test_model.stream(), nullptr);
        }
        outcomes[static_cast<std::size_t>(test_model.comm().rank())] = test_model.outcome();
    });
    expect_same(expected[0], outcomes[0]);
    expect_same(expected[1], outcomes[1]);
}

} // namespace
} // namespace mp::test
