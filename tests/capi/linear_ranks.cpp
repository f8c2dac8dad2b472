// SPDX-License-Identifier: Apache-2.0
// fp8 layers on ranks that see different data: their delayed scales follow the largest amax of all, and a value that is not
// finite on one rank is seen on every one; in a message of their own, or in the agreement of the optimizer's step.
#include <cmath>
#include <limits>

#include "layers.hpp"
#include "optimizers.hpp"
#include "ranks.hpp"
#include "support.hpp"

using namespace mp_test;

namespace {

constexpr int32_t kRanks = 3;
constexpr int64_t kSize = 64;

// Two layers and their state after one step in which x is `scale` everywhere.
struct Layers {
    Context context = make_context(1);
    Recipe recipe;
    std::vector<Tensor> weights;
    std::vector<Linear> linears;

    explicit Layers(const char* json) {
        recipe = recipe_of(context, json);
        for (int32_t i = 0; i < 2; ++i) {
            weights.push_back(
                make_tensor(context, MP_DTYPE_FP32, {kSize, kSize}, numbers(kSize * kSize, 7)));
            mp_linear_desc desc = MP_LINEAR_DESC_INIT;
            desc.in_features = desc.out_features = kSize;
            desc.flags = MP_LINEAR_STATS;
            mp_linear* linear = nullptr;
            EXPECT_TRUE(succeeded(
                mp_linear_create(context, recipe, &desc, weights.back(), nullptr, &linear)));
            linears.emplace_back(linear);
        }
    }
    // Another layer over the second weight.
    [[nodiscard]] Linear with_history(int64_t length) const {
        const Recipe short_memory = make_recipe(context, "fp8_delayed");
        EXPECT_TRUE(
            succeeded(mp_recipe_set_int(short_memory, MP_RECIPE_GEMM_AMAX_HISTORY_LEN, length)));
        return make_linear(context, short_memory, linear_desc(kSize, kSize), weights[1]);
    }
    void forward(float scale) {
        const Tensor x = make_tensor(context, MP_DTYPE_FP32, {kSize, kSize},
                                     std::vector<float>(kSize * kSize, scale));
        const Tensor y = make_tensor(context, MP_DTYPE_FP32, {kSize, kSize});
        for (const Linear& linear : linears) {
            EXPECT_TRUE(succeeded(mp_linear_forward(linear, nullptr, x, y)));
        }
    }
    mp_status end_step(mp_comm* comm) {
        mp_linear* all[] = {linears[0], nullptr, linears[1]};
        return mp_linear_end_step(all, 3, nullptr, comm);
    }
    [[nodiscard]] mp_linear_stats stats(std::size_t layer, int32_t operand) const {
        mp_linear_stats info{};
        info.struct_size = sizeof info;
        EXPECT_TRUE(succeeded(mp_linear_get_stats(linears[layer], operand, &info)));
        return info;
    }
};

TEST(LinearRanks, DelayedScalesFollowTheLargestOfAllRanks) {
    run_ranks(kRanks, [](mp_comm* comm, int32_t rank) {
        Layers layers(R"({"recipe": "fp8_delayed"})");
        layers.forward(static_cast<float>(1 << rank)); // 1, 2, 4
        EXPECT_TRUE(succeeded(layers.end_step(comm)));
        for (std::size_t i = 0; i < 2; ++i) {
            const mp_linear_stats x = layers.stats(i, MP_OPERAND_INPUT);
            EXPECT_EQ(x.history_amax, 4.0);
            EXPECT_EQ(static_cast<float>(x.scale_inv), 4.0F / 448.0F);
        }
    });
}

TEST(LinearRanks, WithoutReductionEveryRankIsItsOwn) {
    run_ranks(kRanks, [](mp_comm* comm, int32_t rank) {
        Layers layers(R"({"recipe": "fp8_delayed", "gemm.reduce_amax": "off"})");
        layers.forward(static_cast<float>(1 << rank));
        EXPECT_TRUE(succeeded(layers.end_step(comm)));
        EXPECT_EQ(layers.stats(0, MP_OPERAND_INPUT).history_amax, static_cast<double>(1 << rank));
    });
}

// An amax that is not finite on one rank does what it does on one rank alone, on all of them.
TEST(LinearRanks, WhatIsNotFiniteIsSeenEverywhere) {
    run_ranks(kRanks, [](mp_comm* comm, int32_t rank) {
        Layers layers(R"({"recipe": "fp8_delayed"})");
        layers.forward(2.0F);
        EXPECT_TRUE(succeeded(layers.end_step(comm)));
        const mp_linear_stats before = layers.stats(0, MP_OPERAND_INPUT);
        layers.forward(rank == 1 ? std::numeric_limits<float>::infinity() : 1.0F);
        EXPECT_TRUE(succeeded(layers.end_step(comm)));
        const mp_linear_stats after = layers.stats(0, MP_OPERAND_INPUT);
        EXPECT_EQ(after.scale_inv, before.scale_inv); // the step is skipped, the scale stays
        EXPECT_EQ(after.history_amax, before.history_amax);
    });
}

TEST(LinearRanks, WrongUse) {
    run_ranks(kRanks, [](mp_comm* comm, int32_t /*rank*/) {
        Layers layers(R"({"recipe": "fp8_current"})"); // nothing to exchange
        layers.forward(1.0F);
        EXPECT_TRUE(succeeded(layers.end_step(comm)));
        mp_linear* one[] = {layers.linears[0]};
        EXPECT_TRUE(fails(mp_linear_end_step(one, -1, nullptr, comm), MP_STATUS_INVALID_ARGUMENT,
                          {"count"}));
        EXPECT_TRUE(fails(mp_linear_end_step(nullptr, 1, nullptr, comm), MP_STATUS_NULL_ARGUMENT,
                          {"linears"}));
    });
}

// ---- in the optimizer's agreement ----------------------------------------------------------------------

constexpr const char* kDelayed = R"({"recipe": "fp8_delayed"})";

// Layers whose weights a sharded optimizer steps. With `comm` NULL it is nobody else's.
struct Model {
    Layers layers{kDelayed};
    mp_test::Optimizer optimizer;

    explicit Model(mp_comm* comm) {
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.flags = MP_OPTIMIZER_CHECK_FINITE;
        optimizer = make_optimizer_on(comm, layers.context, layers.recipe, &desc);
        int32_t group = 0;
        EXPECT_TRUE(succeeded(mp_optimizer_add_group(optimizer, nullptr, &group)));
        for (std::size_t i = 0; i < layers.weights.size(); ++i) {
            const std::string name = "w" + std::to_string(i);
            EXPECT_TRUE(succeeded(add_param(optimizer, group, name.c_str(), layers.weights[i])));
        }
    }
    mp_status set_linears(int32_t count = 3) {
        mp_linear* all[] = {layers.linears[0], nullptr, layers.linears[1]};
        return mp_optimizer_set_linears(optimizer, all, count);
    }
    mp_status step() { return mp_optimizer_step(optimizer, nullptr, nullptr); }
    // A gradient of the first layer that is not finite.
    void spoil() {
        const Tensor grad = state_of(optimizer, 0, "grad");
        const std::vector<unsigned char> ones(bytes_of(grad).size(), 0xff); // NaN in every type
        EXPECT_TRUE(succeeded(mp_tensor_write(grad, nullptr, ones.data(), ones.size())));
    }
    [[nodiscard]] mp_comm_traffic traffic() const {
        mp_comm_traffic traffic{};
        traffic.struct_size = sizeof traffic;
        EXPECT_TRUE(succeeded(mp_optimizer_get_traffic(optimizer, &traffic)));
        return traffic;
    }
    // Scales and histories of all layers.
    [[nodiscard]] std::vector<unsigned char> scaling() const {
        std::vector<unsigned char> all;
        for (const Linear& linear : layers.linears) {
            const std::vector<unsigned char> one = scaling_of(linear);
            all.insert(all.end(), one.begin(), one.end());
        }
        return all;
    }
};

// Three ranks with other data each; the second step is skipped, and in the third an amax is not finite on one rank.
void forward(Model& model, int32_t rank, int32_t step) {
    model.layers.forward(step == 2 && rank == 1 ? std::numeric_limits<float>::infinity()
                                                : static_cast<float>((rank + 1) << step));
    if (step == 1 && rank == 2) {
        model.spoil();
    }
}

TEST(LinearRanks, TheVoteCarriesWhatAMessageOfTheirOwnWould) {
    run_ranks(kRanks, [](mp_comm* comm, int32_t rank) {
        Model in_vote(comm);
        Model apart(comm);
        EXPECT_TRUE(succeeded(in_vote.set_linears()));
        EXPECT_TRUE(succeeded(mp_optimizer_shard(in_vote.optimizer, nullptr)));
        EXPECT_TRUE(succeeded(mp_optimizer_shard(apart.optimizer, nullptr)));
        for (int32_t step = 0; step < 4; ++step) {
            forward(in_vote, rank, step);
            forward(apart, rank, step);
            const mp_comm_traffic before[] = {in_vote.traffic(), apart.traffic()};
            EXPECT_TRUE(succeeded(in_vote.step()));
            EXPECT_TRUE(succeeded(apart.step()));
            const mp_comm_traffic after[] = {in_vote.traffic(), apart.traffic()};
            EXPECT_TRUE(succeeded(apart.layers.end_step(comm)));
            // Not a message more, and in it a word for each operand of both layers.
            EXPECT_EQ(after[0].calls - before[0].calls, after[1].calls - before[1].calls);
            EXPECT_EQ(after[0].max_u32_bytes - before[0].max_u32_bytes,
                      after[1].max_u32_bytes - before[1].max_u32_bytes + 2 * MP_OPERAND_COUNT * 4);
            EXPECT_EQ(in_vote.scaling(), apart.scaling()) << "step " << step;
            const mp_optimizer_stats stats = stats_of(in_vote.optimizer);
            EXPECT_EQ(stats.skipped_steps, step == 0 ? 0 : 1);
            for (Model* model : {&in_vote, &apart}) {
                EXPECT_TRUE(succeeded(mp_optimizer_zero_grad(model->optimizer, nullptr)));
            }
        }
        EXPECT_EQ(in_vote.layers.stats(1, MP_OPERAND_INPUT).history_amax, 24.0);
        EXPECT_EQ(in_vote.layers.stats(1, MP_OPERAND_INPUT).updates, 3); // not the infinite one
    });
}

TEST(LinearRanks, OtherLayersOnARankAreNamed) {
    run_ranks(kRanks, [](mp_comm* comm, int32_t rank) {
        Model model(comm);
        EXPECT_TRUE(fails(model.set_linears(rank == 1 ? 1 : 3), MP_STATUS_RANK_MISMATCH,
                          {"the number of layers", "rank(s) 1 do not"}));
        const mp_test::Linear other = model.layers.with_history(2);
        mp_linear* list[] = {model.layers.linears[0], rank == 2 ? other : model.layers.linears[1]};
        EXPECT_TRUE(fails(mp_optimizer_set_linears(model.optimizer, list, 2),
                          MP_STATUS_RANK_MISMATCH, {"the layers' sizes or recipes", "rank(s) 2"}));
        mp_linear* twice[] = {model.layers.linears[0], model.layers.linears[0]};
        mp_linear* once[] = {model.layers.linears[0], model.layers.linears[1]};
        EXPECT_TRUE(fails(mp_optimizer_set_linears(model.optimizer, rank == 0 ? twice : once, 2),
                          rank == 0 ? MP_STATUS_INVALID_ARGUMENT : MP_STATUS_PEER_ERROR,
                          {rank == 0 ? "listed before" : "rank 0"}));
        {
            const mp_test::Optimizer another =
                make_optimizer(model.layers.context, model.layers.recipe);
            if (rank == 1) {
                EXPECT_TRUE(succeeded(mp_optimizer_set_linears(another, once, 1)));
            }
            EXPECT_TRUE(fails(mp_optimizer_set_linears(model.optimizer, once, 2),
                              rank == 1 ? MP_STATUS_BAD_STATE : MP_STATUS_PEER_ERROR,
                              {rank == 1 ? "another optimizer" : "rank 1"}));
        }
        EXPECT_TRUE(fails(mp_optimizer_set_linears(model.optimizer, rank == 2 ? nullptr : once, 2),
                          rank == 2 ? MP_STATUS_NULL_ARGUMENT : MP_STATUS_PEER_ERROR,
                          {rank == 2 ? "linears" : "rank 2"}));
        // None of these lists counts: a step works, and moves no scale.
        model.layers.forward(2.0F);
        EXPECT_TRUE(succeeded(model.step()));
        EXPECT_EQ(model.layers.stats(0, MP_OPERAND_INPUT).updates, 0);
    });
}

TEST(LinearRanks, AStepThatFailsInItsVoteMovesNoScale) {
    run_ranks(kRanks, [](mp_comm* comm, int32_t rank) {
        Model model(comm);
        EXPECT_TRUE(succeeded(model.set_linears()));
        EXPECT_TRUE(succeeded(mp_optimizer_shard(model.optimizer, nullptr)));
        model.layers.forward(static_cast<float>(rank + 1));
        const std::vector<unsigned char> before = model.scaling();
        EXPECT_TRUE(succeeded(mp_optimizer_set_lr(model.optimizer, -1, rank == 1 ? 0.5 : 0.25)));
        EXPECT_TRUE(fails(model.step(), MP_STATUS_RANK_MISMATCH, {"lr 0.25"}));
        EXPECT_EQ(model.scaling(), before);
        EXPECT_TRUE(succeeded(mp_optimizer_set_lr(model.optimizer, -1, 0.25)));
        EXPECT_TRUE(succeeded(model.step())); // the amaxes have waited
        EXPECT_EQ(model.layers.stats(0, MP_OPERAND_INPUT).history_amax, 3.0);
    });
}

TEST(LinearRanks, WithoutRanksTheStepEndsTheirsToo) {
    Model model(nullptr);
    Model other(nullptr);
    EXPECT_TRUE(succeeded(model.set_linears()));
    int calls = 0;
    const auto count = [](void* payload, const char* /*name*/, const mp_linear_stats* /*stats*/,
                          const char* /*advice*/) { ++*static_cast<int*>(payload); };
    EXPECT_TRUE(succeeded(mp_linear_set_monitor(model.layers.linears[0], "w0", 1, count, &calls)));
    mp_linear* all[] = {other.layers.linears[0], other.layers.linears[1]};
    for (int32_t step = 0; step < 3; ++step) {
        for (Model* each : {&model, &other}) {
            forward(*each, 0, step);
            EXPECT_TRUE(succeeded(each->step()));
        }
        EXPECT_TRUE(succeeded(mp_linear_end_step(all, 2, nullptr, nullptr)));
        EXPECT_EQ(model.scaling(), other.scaling());
        EXPECT_EQ(calls, (step + 1) * MP_OPERAND_COUNT);
    }
    EXPECT_TRUE(succeeded(mp_optimizer_set_linears(model.optimizer, nullptr, 0)));
    EXPECT_TRUE(succeeded(model.step()));
    EXPECT_EQ(calls, 3 * MP_OPERAND_COUNT);
    EXPECT_TRUE(fails(mp_optimizer_set_linears(model.optimizer, nullptr, 1),
                      MP_STATUS_NULL_ARGUMENT, {"linears"}));
    EXPECT_TRUE(fails(mp_optimizer_set_linears(model.optimizer, nullptr, -1),
                      MP_STATUS_INVALID_ARGUMENT, {"count is -1"}));
    EXPECT_TRUE(fails(mp_optimizer_set_linears(nullptr, nullptr, 0), MP_STATUS_NULL_ARGUMENT,
                      {"optimizer"}));
}

} // namespace
