// SPDX-License-Identifier: Apache-2.0
// Plans under MP_OPTIMIZER_OFFLOAD, against what live optimizers hold after a step. Against an allocator: memory_limit.cpp.
#include <limits>

#include "planned_model.hpp"

using namespace mp_test;

namespace {

const uint32_t kPlaces[] = {MP_OPTIMIZER_OFFLOAD,
                            MP_OPTIMIZER_OFFLOAD | MP_OPTIMIZER_OFFLOAD_GRADS};

mp_sharding_desc sharding_of(const Case& c, int32_t stage) {
    mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
    sharding.stage = stage == 0 ? MP_SHARDING_STAGE_0 : stage;
    sharding.kind = c.kind;
    sharding.bucket_elements = 30000;
    return sharding;
}

// From the first step on all of it is there.
void expect_planned(const Live& live, const mp_sharding_desc* sharding, int32_t rank, int32_t ranks,
                    const std::string& where) {
    mp_memory_report report = MP_MEMORY_REPORT_INIT;
    MP_OK(live.plan(sharding, rank, ranks, &report, nullptr));
    expect_equal(report, live.held(), where);
    EXPECT_GT(report.offload_bytes, 0) << where;
    EXPECT_GT(report.host_bytes, report.offload_bytes) << where;
}

} // namespace

TEST(PlanOffload, IsWhatALiveOptimizerHolds) {
    for (const Case& c : all_cases()) {
        if (c.kinds[0].dtype != MP_DTYPE_NONE) {
            continue; // codes are for ranks
        }
        for (const uint32_t flags : kPlaces) {
            const Live live(c.recipe, c.kinds, nullptr, {}, flags);
            MP_OK(mp_optimizer_step(live.optimizer, nullptr, nullptr));
            expect_planned(live, nullptr, 0, 1, c.recipe);
        }
    }
}

TEST(PlanOffload, IsWhatEveryRankHoldsInEveryStage) {
    constexpr int32_t kRanks = 3;
    for (const Case& c : all_cases()) {
        for (int32_t stage = c.kinds[0].dtype != MP_DTYPE_NONE ? 1 : 0; stage <= 3; ++stage) {
            const mp_sharding_desc sharding = sharding_of(c, stage);
            run_ranks(kRanks, [&](mp_comm* comm, int32_t rank) {
                for (const uint32_t flags : kPlaces) {
                    if (stage == 0 && flags != MP_OPTIMIZER_OFFLOAD) {
                        continue;
                    }
                    const Live live(c.recipe, c.kinds, comm, sharding, flags);
                    MP_OK(mp_optimizer_shard(live.optimizer, nullptr));
                    train_step(live, stage);
                    expect_planned(live, &sharding, rank, kRanks,
                                   std::string(c.recipe) + ", kind " + std::to_string(c.kind) +
                                       ", stage " + std::to_string(stage) + ", flags " +
                                       std::to_string(flags));
                }
            });
        }
    }
}

// More than a bucket of 16 MiB, so that both staging memories are there, and one is larger.
TEST(PlanOffload, CountsTwoBuckets) {
    const std::vector<Kind> kinds = {{4000, 1024, MP_DTYPE_NONE, 0},
                                     {3000, 1024, MP_DTYPE_NONE, 0},
                                     {500, 1024, MP_DTYPE_NONE, 0},
                                     {5000, 1024, MP_DTYPE_NONE, 0}};
    const Live live("bf16_mixed", kinds, nullptr, {}, MP_OPTIMIZER_OFFLOAD);
    const mp_memory_report before = live.held();
    MP_OK(mp_optimizer_step(live.optimizer, nullptr, nullptr));
    const mp_memory_report after = live.held();
    expect_planned(live, nullptr, 0, 1, "bf16_mixed");
    // 4000 and 500 rows; 3000 and 5000 rows: fp32 gradients, the last one of its own.
    EXPECT_GT(after.offload_bytes - before.offload_bytes, (4000 + 3000) * 1024 * 4);
    EXPECT_EQ(before.offload_bytes, before.weight_bytes);
}

TEST(PlanOffload, TheRankThatHoldsMost) {
    const Context context = make_context(1);
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    desc.flags = MP_OPTIMIZER_OFFLOAD;
    for (const Case& c : all_cases()) {
        const Recipe recipe = make_recipe(context, c.recipe);
        const std::vector<mp_planned_tensor> tensors = planned(c.kinds);
        for (const int32_t ranks : {2, 7}) {
            const mp_sharding_desc sharding = sharding_of(c, 1);
            const auto plan = [&](int32_t rank) {
                mp_memory_report one = MP_MEMORY_REPORT_INIT;
                EXPECT_TRUE(succeeded(mp_recipe_plan_tensors(
                    recipe, &desc, tensors.data(), static_cast<int64_t>(tensors.size()), &sharding,
                    rank, ranks, &one, nullptr)));
                return one;
            };
            mp_memory_report most = plan(0);
            for (int32_t rank = 1; rank < ranks; ++rank) {
                const mp_memory_report one = plan(rank);
                const auto on_device = [](const mp_memory_report& of) {
                    return of.total_bytes - of.host_bytes;
                };
                most = on_device(one) > on_device(most) ? one : most;
            }
            expect_equal(plan(-1), most, c.recipe);
        }
    }
}

// Every element's gradient comes once a step, and its weight goes back once; of a step that is skipped nothing moves.
TEST(PlanOffload, TrafficIsCounted) {
    const std::vector<Kind> kinds = {{300, 256, MP_DTYPE_NONE, 0}, {256, 0, MP_DTYPE_FP32, 0}};
    const Live live("bf16_mixed_dual", kinds, nullptr, {},
                    MP_OPTIMIZER_OFFLOAD | MP_OPTIMIZER_CHECK_FINITE);
    const auto traffic = [](const Live& of) {
        mp_offload_traffic moved = MP_OFFLOAD_TRAFFIC_INIT;
        EXPECT_TRUE(succeeded(mp_optimizer_get_offload_traffic(of.optimizer, &moved)));
        return moved;
    };
    EXPECT_EQ(traffic(live).steps, 0);
    for (int64_t step = 1; step <= 2; ++step) {
        MP_OK(mp_optimizer_step(live.optimizer, nullptr, nullptr));
        const mp_offload_traffic moved = traffic(live);
        EXPECT_EQ(moved.steps, step);
        EXPECT_EQ(moved.to_host_bytes, step * (300 * 256 + 256) * 4);
        EXPECT_EQ(moved.to_device_bytes, step * (300 * 256 * 2 + 256 * 4));
        EXPECT_GT(moved.step_ns, moved.waited_ns);
        EXPECT_GE(moved.waited_ns, 0);
    }
    const Tensor grad = state_of(live.optimizer, 1, "grad");
    static_cast<float*>(data_of(grad))[3] = std::numeric_limits<float>::infinity();
    MP_OK(mp_optimizer_step(live.optimizer, nullptr, nullptr));
    EXPECT_EQ(traffic(live).steps, 2);
    EXPECT_EQ(traffic(live).to_host_bytes, 2 * (300 * 256 + 256) * 4);
    const Live apart("fp32", kinds, nullptr, {});
    MP_OK(mp_optimizer_step(apart.optimizer, nullptr, nullptr));
    EXPECT_EQ(traffic(apart).steps + traffic(apart).step_ns, 0);
}

// Groups of ranks that hold a copy each, of one rank alone, too.
TEST(PlanOffload, IsWhatRanksOfGroupsHold) {
    struct Ranks {
        int32_t all, shard_ranks;
    };
    for (const Ranks& ranks : {Ranks{4, 2}, Ranks{2, 1}}) {
        for (const Case& c : all_cases()) {
            for (int32_t stage = c.kinds[0].dtype != MP_DTYPE_NONE ? 1 : 0; stage <= 3; ++stage) {
                mp_sharding_desc sharding = sharding_of(c, stage);
                sharding.shard_ranks = ranks.shard_ranks;
                run_ranks(ranks.all, [&](mp_comm* comm, int32_t rank) {
                    const Live live(c.recipe, c.kinds, comm, sharding, MP_OPTIMIZER_OFFLOAD);
                    MP_OK(mp_optimizer_shard(live.optimizer, nullptr));
                    train_step(live, stage);
                    expect_planned(live, &sharding, rank, ranks.all,
                                   std::string(c.recipe) + ", stage " + std::to_string(stage) +
                                       ", groups of " + std::to_string(ranks.shard_ranks));
                });
            }
        }
    }
}

// What no step is of travels nowhere: less than planned, until it is on again.
TEST(PlanOffload, GroupsThatAreOffHaveNoPlaceInBuckets) {
    const Live live("bf16_mixed", kPlain, nullptr, {}, MP_OPTIMIZER_OFFLOAD);
    mp_memory_report plan = MP_MEMORY_REPORT_INIT;
    MP_OK(live.plan(nullptr, 0, 1, &plan, nullptr));
    MP_OK(mp_optimizer_set_enabled(live.optimizer, 0, 0));
    MP_OK(mp_optimizer_step(live.optimizer, nullptr, nullptr));
    EXPECT_LT(live.held().offload_bytes, plan.offload_bytes);
    MP_OK(mp_optimizer_set_enabled(live.optimizer, 0, 1));
    MP_OK(mp_optimizer_step(live.optimizer, nullptr, nullptr));
    expect_equal(plan, live.held(), "all on");
}

TEST(PlanOffload, TooManyRanksAreRefusedBeforeAnythingIsMadeForThem) {
    const Live live("bf16_mixed", kPlain, nullptr, {}, MP_OPTIMIZER_OFFLOAD);
    mp_memory_report report = MP_MEMORY_REPORT_INIT;
    for (const int32_t rank : {-1, 0}) {
        MP_FAILS(live.plan(nullptr, rank, INT32_MAX, &report, nullptr), MP_STATUS_INVALID_ARGUMENT,
                 "2147483647 ranks");
    }
    mp_optimizer_desc wrong = MP_OPTIMIZER_DESC_INIT;
    wrong.max_grad_norm = -1.0;
    MP_FAILS(
        mp_recipe_plan_tensors(live.recipe, &wrong, nullptr, 0, nullptr, 0, 1, &report, nullptr),
        MP_STATUS_INVALID_ARGUMENT, "max_grad_norm");
}
