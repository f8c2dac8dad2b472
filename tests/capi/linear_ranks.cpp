// SPDX-License-Identifier: Apache-2.0
// fp8 layers on ranks that see different data: their delayed scales follow the largest amax of all, and a value that is not
// finite on one rank is seen on every one.
#include <cmath>
#include <limits>
#include <thread>

#include "support.hpp"

using namespace mp_test;

namespace {

constexpr int32_t kRanks = 3;
constexpr int64_t kSize = 64;

using Comm = Handle<mp_comm, mp_comm_destroy>;

void run_ranks(const std::function<void(int32_t, mp_comm*)>& body) {
    std::vector<mp_comm*> raw(kRanks);
    EXPECT_TRUE(succeeded(mp_comm_create_threads(nullptr, kRanks, raw.data())));
    std::vector<std::thread> threads;
    for (int32_t rank = 0; rank < kRanks; ++rank) {
        threads.emplace_back(
            [&body, rank, comm = Comm(raw[static_cast<std::size_t>(rank)])] { body(rank, comm); });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

// Two layers and their state after one step in which x is `scale` everywhere.
struct Layers {
    Context context = make_context(1);
    Recipe recipe;
    std::vector<Tensor> weights;
    std::vector<Linear> linears;

    explicit Layers(const char* json) {
        mp_recipe* raw = nullptr;
        EXPECT_TRUE(succeeded(mp_recipe_create_from_json(context, json, SIZE_MAX, &raw)));
        recipe = Recipe(raw);
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
        return mp_linear_end_step_on_ranks(comm, all, 3, nullptr);
    }
    [[nodiscard]] mp_linear_stats_info stats(std::size_t layer, int32_t operand) const {
        mp_linear_stats_info info{};
        info.struct_size = sizeof info;
        EXPECT_TRUE(succeeded(mp_linear_stats(linears[layer], operand, &info)));
        return info;
    }
};

TEST(LinearRanks, DelayedScalesFollowTheLargestOfAllRanks) {
    run_ranks([](int32_t rank, mp_comm* comm) {
        Layers layers(R"({"recipe": "fp8_delayed"})");
        layers.forward(static_cast<float>(1 << rank)); // 1, 2, 4
        EXPECT_TRUE(succeeded(layers.end_step(comm)));
        for (std::size_t i = 0; i < 2; ++i) {
            const mp_linear_stats_info x = layers.stats(i, MP_OPERAND_INPUT);
            EXPECT_EQ(x.history_amax, 4.0);
            EXPECT_EQ(static_cast<float>(x.scale_inv), 4.0F / 448.0F);
        }
    });
}

TEST(LinearRanks, WithoutReductionEveryRankIsItsOwn) {
    run_ranks([](int32_t rank, mp_comm* comm) {
        Layers layers(R"({"recipe": "fp8_delayed", "fp8.reduce_amax": "off"})");
        layers.forward(static_cast<float>(1 << rank));
        EXPECT_TRUE(succeeded(layers.end_step(comm)));
        EXPECT_EQ(layers.stats(0, MP_OPERAND_INPUT).history_amax, static_cast<double>(1 << rank));
    });
}

// An amax that is not finite on one rank does what it does on one rank alone, on all of them.
TEST(LinearRanks, WhatIsNotFiniteIsSeenEverywhere) {
    run_ranks([](int32_t rank, mp_comm* comm) {
        Layers layers(R"({"recipe": "fp8_delayed"})");
        layers.forward(2.0F);
        EXPECT_TRUE(succeeded(layers.end_step(comm)));
        const mp_linear_stats_info before = layers.stats(0, MP_OPERAND_INPUT);
        layers.forward(rank == 1 ? std::numeric_limits<float>::infinity() : 1.0F);
        EXPECT_TRUE(succeeded(layers.end_step(comm)));
        const mp_linear_stats_info after = layers.stats(0, MP_OPERAND_INPUT);
        EXPECT_EQ(after.scale_inv, before.scale_inv); // the step is skipped, the scale stays
        EXPECT_EQ(after.history_amax, before.history_amax);
    });
}

TEST(LinearRanks, WrongUse) {
    run_ranks([](int32_t /*rank*/, mp_comm* comm) {
        Layers layers(R"({"recipe": "fp8_current"})"); // nothing to exchange
        layers.forward(1.0F);
        EXPECT_TRUE(succeeded(layers.end_step(comm)));
        mp_linear* one[] = {layers.linears[0]};
        EXPECT_TRUE(fails(mp_linear_end_step_on_ranks(nullptr, one, 1, nullptr),
                          MP_STATUS_NULL_ARGUMENT, {"comm"}));
        EXPECT_TRUE(fails(mp_linear_end_step_on_ranks(comm, one, -1, nullptr),
                          MP_STATUS_INVALID_ARGUMENT, {"count"}));
        EXPECT_TRUE(fails(mp_linear_end_step_on_ranks(comm, nullptr, 1, nullptr),
                          MP_STATUS_NULL_ARGUMENT, {"linears"}));
    });
}

} // namespace
