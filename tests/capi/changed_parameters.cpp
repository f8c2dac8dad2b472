// SPDX-License-Identifier: Apache-2.0
// Parameters that are frozen, trained again and added between steps, on one rank and on several: the bits are those of one rank
// that did the same, and what is held is what is planned. What is refused, and failures: changed_refusals.cpp.
#include <algorithm>

#include "changed_model.hpp"
#include "planned_model.hpp"

using namespace mp_test;

namespace {

using Bytes = std::vector<unsigned char>;

// What a rank has of a parameter's values: all, or its slice.
struct Values {
    int64_t first = 0;
    std::vector<float> values; // none: on other ranks
};

// After each part of a life.
struct Seen {
    std::vector<Bytes> weights;
    std::vector<std::vector<Values>> states; // by parameter: exp_avg, exp_avg_sq, fp32_param
    std::vector<int64_t> t;                  // by group
};

Values values_here(const ChangedModel& model, mp_comm* comm, int32_t index, const char* state) {
    Values here;
    int64_t count = 1;
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    EXPECT_TRUE(
        succeeded(mp_tensor_get_desc(model.params[static_cast<std::size_t>(index)], &desc)));
    for (int32_t d = 0; d < desc.ndim; ++d) {
        count *= desc.shape[d];
    }
    if (comm != nullptr && model.kind.stage > 0) {
        EXPECT_TRUE(succeeded(
            mp_optimizer_get_slice(model.optimizer, index, model.rank, &here.first, &count)));
    }
    if (count == 0) {
        return here;
    }
    const Tensor values = make_tensor(model.context, MP_DTYPE_FP32, {count});
    EXPECT_TRUE(succeeded(mp_optimizer_read_state(model.optimizer, nullptr, index, state, values)));
    here.values = values_of(model.context, values);
    return here;
}

Seen look(ChangedModel& model, mp_comm* comm) {
    Seen seen;
    seen.weights = model.weights();
    for (int32_t i = 0; i < model.count(); ++i) {
        std::vector<Values>& states = seen.states.emplace_back();
        for (const char* state : {"exp_avg", "exp_avg_sq", "fp32_param"}) {
            if (!model.is_frozen(i)) {
                states.push_back(values_here(model, comm, i, state));
            }
        }
    }
    seen.t = {model.t(0), model.t(1)};
    return seen;
}

// Layers are frozen, unfrozen and added, more than once. `see` after each part.
template <typename See> void live(ChangedModel& model, const See& see) {
    model.steps(1, 3);
    see();
    model.set_frozen({0}, 1);
    see();
    model.steps(3, 5);
    model.set_frozen({2, 5}, 0);
    see();
    model.steps(5, 6);
    model.add(late_params(), 1);
    model.init_deferred(8);
    see();
    model.steps(6, 8);
    model.set_frozen({0, 7}, 0);
    model.set_frozen({4, 1}, 1);
    model.steps(8, 10);
    see();
}

std::vector<Seen> seen_by(mp_comm* comm, const ChangedKind& kind) {
    ChangedModel model(comm, kind);
    std::vector<Seen> all;
    live(model, [&] { all.push_back(look(model, comm)); });
    EXPECT_EQ(model.status, MP_STATUS_OK) << model.said;
    return all;
}

void expect_same(const std::vector<Seen>& here, const std::vector<Seen>& alone) {
    ASSERT_EQ(here.size(), alone.size());
    for (std::size_t part = 0; part < here.size(); ++part) {
        SCOPED_TRACE("part " + std::to_string(part));
        EXPECT_EQ(here[part].t, alone[part].t);
        ASSERT_EQ(here[part].weights.size(), alone[part].weights.size());
        for (std::size_t i = 0; i < here[part].weights.size(); ++i) {
            EXPECT_TRUE(here[part].weights[i] == alone[part].weights[i]) << "weight " << i;
            ASSERT_EQ(here[part].states[i].size(), alone[part].states[i].size());
            for (std::size_t k = 0; k < here[part].states[i].size(); ++k) {
                const Values& own = here[part].states[i][k];
                const Values& whole = alone[part].states[i][k];
                EXPECT_TRUE(std::equal(own.values.begin(), own.values.end(),
                                       whole.values.begin() + own.first))
                    << "state " << k << " of " << i;
            }
        }
    }
}

std::string text_of(const ChangedKind& kind, int32_t ranks) {
    return std::string(kind.recipe) + " stage " + std::to_string(kind.stage) + " plan " +
           std::to_string(kind.plan) + " flags " + std::to_string(kind.flags) + " on " +
           std::to_string(ranks);
}

void expect_as_alone(const ChangedKind& kind, int32_t ranks, const std::vector<Seen>& alone) {
    run_sharded(ranks, [&](mp_comm* comm, int32_t rank) {
        SCOPED_TRACE(text_of(kind, ranks) + ", rank " + std::to_string(rank));
        expect_same(seen_by(comm, kind), alone);
    });
}

} // namespace

TEST(ChangedParameters, HaveTheBitsOfOneRank) {
    for (const char* recipe : {"fp32", "bf16_pure_kahan", "bf16_pure_remainder"}) {
        const std::vector<Seen> alone = seen_by(nullptr, {recipe, 0});
        for (const int32_t stage : {0, 1, 2, 3}) {
            for (const int32_t plan : {MP_SHARD_FLAT, MP_SHARD_PER_PARAMETER, MP_SHARD_GREEDY}) {
                for (const int32_t ranks : {1, 2, 3}) {
                    ChangedKind kind = {recipe, stage, plan};
                    kind.bucket_elements = ranks == 2 ? 30000 : 0;
                    expect_as_alone(kind, ranks, alone);
                }
            }
        }
    }
}

TEST(ChangedParameters, HaveTheBitsOfOneRankOnUpToEight) {
    const std::vector<Seen> alone = seen_by(nullptr, {"fp32", 0});
    for (const int32_t ranks : {4, 5, 6, 7, 8}) {
        for (const int32_t stage : {1, 3}) {
            expect_as_alone({"fp32", stage, ranks % 3, 0, 20000}, ranks, alone);
        }
    }
}

TEST(ChangedParameters, HaveTheBitsOfOneRankOffloaded) {
    for (const char* recipe : {"fp32", "bf16_pure_remainder"}) {
        const std::vector<Seen> alone = seen_by(nullptr, {recipe, 0});
        constexpr uint32_t kAll = MP_OPTIMIZER_OFFLOAD | MP_OPTIMIZER_OFFLOAD_GRADS;
        for (const uint32_t flags : {MP_OPTIMIZER_OFFLOAD, kAll}) {
            expect_same(seen_by(nullptr, {recipe, 0, MP_SHARD_FLAT, flags}), alone);
            for (int32_t stage = flags == kAll ? 1 : 0; stage <= 3; ++stage) {
                expect_as_alone({recipe, stage, MP_SHARD_FLAT, flags, 30000}, 3, alone);
            }
        }
    }
}

// Weights that are gathered rounded: one rank computes with what was gathered, too.
TEST(ChangedParameters, HaveTheBitsOfOneRankWhereWeightsAreGatheredRounded) {
    std::vector<Seen> alone;
    run_sharded(1, [&](mp_comm* comm, int32_t /*rank*/) { alone = seen_by(comm, {"bf16_mixed"}); });
    for (const int32_t stage : {1, 2, 3}) {
        for (const int32_t plan : {MP_SHARD_FLAT, MP_SHARD_PER_PARAMETER, MP_SHARD_GREEDY}) {
            expect_as_alone({"bf16_mixed", stage, plan, 0, 30000}, 3, alone);
        }
    }
}

// Codes that ranks gather, whose owner has the exact weight: frozen, the codes are what stays.
TEST(ChangedParameters, HaveTheBitsOfOneRankWhereCodesAreGathered) {
    ChangedKind kind = {R"({"recipe": "fp8_current", "weight.gather.dtype": "fp32",
                            "weight.gather.codes": "on"})"};
    kind.has_codes = true;
    std::vector<Seen> alone;
    run_sharded(1, [&](mp_comm* comm, int32_t /*rank*/) { alone = seen_by(comm, kind); });
    kind.bucket_elements = 30000;
    for (const int32_t stage : {1, 2, 3}) {
        for (const int32_t plan : {MP_SHARD_FLAT, MP_SHARD_PER_PARAMETER, MP_SHARD_GREEDY}) {
            kind.stage = stage;
            kind.plan = plan;
            expect_as_alone(kind, 3, alone);
        }
    }
}

TEST(ChangedParameters, HaveTheBitsOfOneRankInGroupsAndNodesAndEveryOrder) {
    const std::vector<Seen> alone = seen_by(nullptr, {"fp32", 0});
    for (const int32_t stage : {1, 3}) {
        ChangedKind kind = {"fp32", stage, MP_SHARD_FLAT, 0, 30000};
        kind.shard_ranks = 2;
        expect_as_alone(kind, 4, alone);
        std::swap(kind.shard_ranks, kind.node_ranks);
        expect_as_alone(kind, 4, alone);
        kind.node_ranks = 0;
        for (const int32_t order : {MP_COMM_ORDER_TREE, MP_COMM_ORDER_EXACT, MP_COMM_ORDER_FAST}) {
            kind.order = order;
            expect_as_alone(kind, 3, alone);
        }
    }
}

// States in blocks, and states with one scale for the tensor, which are not cut.
TEST(ChangedParameters, MoveCodesWithTheirScales) {
    constexpr const char* kBlocks =
        R"({"recipe": "bf16_pure", "optimizer.exp_avg.dtype": "int8_block256",
            "optimizer.exp_avg_sq.dtype": "fp8_e4m3_block128"})";
    const std::vector<Seen> blocks = seen_by(nullptr, {kBlocks, 0});
    std::vector<Seen> scaled; // whose sums depend on the number of ranks
    run_sharded(3, [&](mp_comm* comm, int32_t rank) {
        std::vector<Seen> seen = seen_by(comm, {"msamp_o2", 0});
        if (rank == 0) {
            scaled = std::move(seen);
        }
    });
    for (const int32_t stage : {0, 1, 2, 3}) {
        expect_as_alone({kBlocks, stage, MP_SHARD_FLAT, 0, 30000}, 3, blocks);
        expect_as_alone({"msamp_o2", stage, MP_SHARD_GREEDY}, 3, scaled);
    }
}
