// SPDX-License-Identifier: Apache-2.0
// Sharded steps of ranks that read each other's gradients and weights where they lie, against the same over a transport that
// copies: the same bits in every stage, order and plan.
#include "faulty_transport.hpp"
#include "zero.hpp"

namespace mp::test {
namespace {

std::vector<Outcome> train_over(bool copies, int32_t ranks, const Training& run, bool says_ready) {
    auto fault = std::make_shared<PlannedFault>();
    fault->copies = copies;
    std::vector<std::unique_ptr<Communicator>> communicators;
    for (auto& transport : comm::make_thread_transports({ranks, 0})) {
        communicators.push_back(std::make_unique<Communicator>(
            std::make_unique<FaultyTransport>(std::move(transport), fault), 20000));
    }
    std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
    run_ranks(std::move(communicators), [&](std::unique_ptr<Communicator>& comm) {
        try {
            const auto rank = static_cast<std::size_t>(comm->rank());
            TestModel model(run, std::move(comm));
            model.optimizer().shard(model.stream());
            for (int32_t step = 0; step < run.steps; ++step) {
                model.backward(step, says_ready);
                model.optimizer().step(model.stream(), nullptr);
            }
            outcomes[rank] = model.outcome();
        } catch (const Error& error) {
            ADD_FAILURE() << error.what();
        }
    });
    return outcomes;
}

void expect_same_over_both(int32_t ranks, const Training& run, bool says_ready) {
    const std::vector<Outcome> read = train_over(false, ranks, run, says_ready);
    const std::vector<Outcome> copied = train_over(true, ranks, run, says_ready);
    for (std::size_t r = 0; r < read.size(); ++r) {
        expect_same(copied[r], read[r]);
    }
}

class ZeroLent : public testing::TestWithParam<int32_t> {}; // stage
INSTANTIATE_TEST_SUITE_P(Stages, ZeroLent, testing::Values(0, 1, 2, 3));

TEST_P(ZeroLent, GivesTheBitsOfACopy) {
    for (const char* name : {"fp32", "bf16_pure_kahan", "bf16_mixed", "msamp_o3"}) {
        Training run;
        run.recipe = recipe::find_preset(name).recipe;
        run.sharding.stage = GetParam();
        run.sharding.kind =
            is_scaled(run.recipe.master) ? shard::ShardKind::greedy : shard::ShardKind::flat;
        run.sharding.bucket_elements = 20000;
        for (const int32_t ranks : {2, 3}) {
            for (const bool says_ready : {false, true}) {
                SCOPED_TRACE(testing::Message()
                             << name << ", " << ranks << " ranks, " << says_ready);
                expect_same_over_both(ranks, run, says_ready);
            }
        }
    }
}

TEST_P(ZeroLent, GivesTheBitsOfACopyInEveryOrder) {
    for (const comm::SumOrder order :
         {comm::SumOrder::rank, comm::SumOrder::tree, comm::SumOrder::exact}) {
        for (const DType wire : {DType::fp32, DType::bf16}) {
            Training run;
            run.recipe = recipe::find_preset("fp32").recipe;
            run.sharding.stage = GetParam();
            run.sharding.order = order;
            run.sharding.wire = comm::wire_format(wire);
            run.sharding.slots = run.slots = order == comm::SumOrder::rank ? 0 : 5;
            SCOPED_TRACE(testing::Message() << comm::order_name(order) << ", " << dtype_name(wire));
            expect_same_over_both(3, run, false);
        }
    }
}

TEST_P(ZeroLent, GivesTheBitsOfACopyInGroups) {
    for (const bool has_nodes : {false, true}) {
        Training run;
        run.recipe = recipe::find_preset("fp32").recipe;
        run.sharding.stage = GetParam();
        (has_nodes ? run.sharding.node_ranks : run.sharding.shard_ranks) = 2;
        SCOPED_TRACE(has_nodes ? "nodes" : "replicas");
        expect_same_over_both(4, run, false);
        expect_same_over_both(4, run, true);
    }
}

} // namespace
} // namespace mp::test
