// SPDX-License-Identifier: Apache-2.0
// mp_recipe_plan_tensors: layouts of several kinds, against what live optimizers on ranks hold and send.

#include "planned_model.hpp"

using namespace mp_test;

TEST(PlanTensors, AreWhatALiveOptimizerHolds) {
    for (const Case& c : all_cases()) {
        if (c.kinds[0].dtype != MP_DTYPE_NONE) {
            continue; // codes are for ranks
        }
        const Live live(c.recipe, c.kinds, nullptr, {});
        mp_memory_report report = MP_MEMORY_REPORT_INIT;
        MP_OK(live.plan(nullptr, 0, 1, &report, nullptr));
        expect_equal(report, live.held(), c.recipe);
    }
}

TEST(PlanTensors, AreWhatEveryRankHoldsInEveryStage) {
    constexpr int32_t kRanks = 3;
    for (const Case& c : all_cases()) {
        for (int32_t stage = c.kinds[0].dtype != MP_DTYPE_NONE ? 1 : 0; stage <= 3; ++stage) {
            mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
            sharding.stage = stage == 0 ? MP_SHARDING_STAGE_0 : stage;
            sharding.kind = c.kind;
            sharding.bucket_elements = 30000;
            run_ranks(kRanks, [&](mp_comm* comm, int32_t rank) {
                const Live live(c.recipe, c.kinds, comm, sharding);
                MP_OK(mp_optimizer_shard(live.optimizer, nullptr));
                mp_memory_report report = MP_MEMORY_REPORT_INIT;
                MP_OK(live.plan(&sharding, rank, kRanks, &report, nullptr));
                expect_equal(report, live.held(),
                             std::string(c.recipe) + ", kind " + std::to_string(c.kind) +
                                 ", stage " + std::to_string(stage));
            });
        }
    }
}

// Gradients in memory of the caller's have it always.
TEST(PlanTensors, CountGradientsThatAreLent) {
    constexpr int32_t kRanks = 2;
    std::vector<Kind> kinds = kPlain;
    kinds[0].lends_grad = kinds[3].lends_grad = true;
    for (const char* recipe : {"fp32", "bf16_mixed"}) {
        for (int32_t stage = 0; stage <= 3; ++stage) {
            mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
            sharding.stage = stage == 0 ? MP_SHARDING_STAGE_0 : stage;
            run_ranks(kRanks, [&](mp_comm* comm, int32_t rank) {
                const Live live(recipe, kinds, comm, sharding);
                MP_OK(mp_optimizer_shard(live.optimizer, nullptr));
                train_step(live, stage);
                mp_memory_report report = MP_MEMORY_REPORT_INIT;
                MP_OK(live.plan(&sharding, rank, kRanks, &report, nullptr));
                expect_equal(report, live.held(),
                             std::string(recipe) + ", stage " + std::to_string(stage));
            });
        }
        const Live alone(recipe, kinds, nullptr, {});
        mp_memory_report report = MP_MEMORY_REPORT_INIT;
        MP_OK(alone.plan(nullptr, 0, 1, &report, nullptr));
        expect_equal(report, alone.held(), recipe);
    }
}

TEST(PlanTensors, AreWhatRanksSend) {
    struct Layout {
        int32_t ranks, shard_ranks, node_ranks, order;
    };
    for (const Layout& layout :
         {Layout{3, 0, 0, MP_COMM_ORDER_RANK}, Layout{4, 2, 0, MP_COMM_ORDER_RANK},
          Layout{4, 0, 2, MP_COMM_ORDER_RANK}, Layout{4, 2, 0, MP_COMM_ORDER_TREE},
          Layout{2, 0, 0, MP_COMM_ORDER_EXACT}}) {
        for (const Case& c : all_cases()) {
            const bool is_shared = std::string(c.recipe).starts_with("msamp");
            if (is_shared && layout.node_ranks > 0) {
                continue; // refused
            }
            for (int32_t stage = c.kinds[0].dtype != MP_DTYPE_NONE ? 1 : 0; stage <= 3; ++stage) {
                mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
                sharding.flags = MP_SHARDING_NO_PROGRESS_THREAD;
                sharding.stage = stage == 0 ? MP_SHARDING_STAGE_0 : stage;
                sharding.kind = c.kind;
                sharding.shard_ranks = layout.shard_ranks;
                sharding.node_ranks = layout.node_ranks;
                sharding.order = layout.order;
                sharding.bucket_elements = 30000;
                std::vector<int64_t> sent(static_cast<std::size_t>(layout.ranks));
                int64_t planned = 0;
                run_ranks(layout.ranks, [&](mp_comm* comm, int32_t rank) {
                    const Live live(c.recipe, c.kinds, comm, sharding);
                    MP_OK(mp_optimizer_shard(live.optimizer, nullptr));
                    mp_comm_traffic before = MP_COMM_TRAFFIC_INIT, after = MP_COMM_TRAFFIC_INIT;
                    MP_OK(mp_optimizer_get_traffic(live.optimizer, &before));
                    train_step(live, stage);
                    MP_OK(mp_optimizer_get_traffic(live.optimizer, &after));
                    sent[static_cast<std::size_t>(rank)] =
                        after.total_bytes - before.total_bytes -
                        (layout.order == MP_COMM_ORDER_EXACT
                             ? 0
                             : after.max_u32_bytes - before.max_u32_bytes);
                    if (rank == 0) {
                        mp_comm_traffic traffic = MP_COMM_TRAFFIC_INIT;
                        MP_OK(live.plan(&sharding, 0, layout.ranks, nullptr, &traffic));
                        planned = traffic.total_bytes;
                        EXPECT_EQ(traffic.total_bytes,
                                  traffic.all_to_all_bytes + traffic.all_gather_bytes);
                    }
                });
                double mean = 0.0;
                for (const int64_t bytes : sent) {
                    mean += static_cast<double>(bytes) / layout.ranks;
                }
                // Beside whole gradients and weights go blocks' ends, sums of the norm and agreements: kilobytes.
                EXPECT_NEAR(static_cast<double>(planned), mean, 0.01 * mean + 8000.0)
                    << c.recipe << ", kind " << c.kind << ", stage " << stage << ", "
                    << layout.ranks << " ranks, groups of " << layout.shard_ranks << ", nodes of "
                    << layout.node_ranks << ", order " << layout.order;
            }
        }
    }
}

// What no product multiplies is not rounded for it: on ranks too a norm's weights are the optimizer's to the bit.
TEST(PlanTensors, VectorsAreGatheredAsTheyAreKept) {
    const std::vector<Kind> kinds = {{130, 70, MP_DTYPE_FP32, 0}, {20000, 0, MP_DTYPE_FP32, 0}};
    for (const char* name : {"bf16_mixed", "bf16_mixed_fp32_compute", "fp8_delayed"}) {
        const Live alone(name, kinds, nullptr, {});
        const auto write = [](const Live& live) {
            for (int32_t i = 0; i < 2; ++i) {
                mp_tensor* raw = nullptr;
                EXPECT_TRUE(succeeded(mp_optimizer_acquire_grad(live.optimizer, nullptr, i)));
                EXPECT_TRUE(succeeded(mp_optimizer_get_state(live.optimizer, i, "grad", &raw)));
                const Tensor grad(raw);
                const std::vector<float> values = numbers(i == 0 ? 9100 : 20000, 11);
                EXPECT_TRUE(
                    succeeded(mp_tensor_write(grad, nullptr, values.data(), values.size() * 4)));
            }
            EXPECT_TRUE(succeeded(mp_optimizer_step(live.optimizer, nullptr, nullptr)));
        };
        write(alone);
        for (const int32_t ranks : {1, 2}) {
            for (int32_t stage = 1; stage <= 3; ++stage) {
                mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
                sharding.stage = stage == 0 ? MP_SHARDING_STAGE_0 : stage;
                run_ranks(ranks, [&](mp_comm* comm, int32_t) {
                    const Live live(name, kinds, comm, sharding);
                    MP_OK(mp_optimizer_shard(live.optimizer, nullptr));
                    write(live);
                    constexpr int32_t kBoth[] = {0, 1};
                    MP_OK(mp_optimizer_gather_begin(live.optimizer, nullptr, kBoth, 2));
                    MP_OK(mp_optimizer_gather_wait(live.optimizer, nullptr, kBoth, 2));
                    EXPECT_NE(bytes_of(live.weights[0]), bytes_of(alone.weights[0]));
                    EXPECT_EQ(bytes_of(live.weights[1]), bytes_of(alone.weights[1]))
                        << name << ", stage " << stage;
                });
            }
        }
    }
}

// Rank -1 is the one that holds most, the first of equal ones: against all ranks, one by one.
TEST(PlanTensors, TheLargestRankIsFoundInOnePass) {
    const Context context = make_context(1);
    int compared = 0;
    for (const Case& c : all_cases()) {
        const Recipe recipe = make_recipe(context, c.recipe);
        std::vector<mp_planned_tensor> tensors = planned(c.kinds);
        for (int64_t i = 0; i < 40; ++i) {
            tensors.push_back(tensors[static_cast<std::size_t>(i) % c.kinds.size()]);
            tensors.back().count = 1 + i * i * 977;
        }
        for (const int32_t ranks : {2, 3, 7, 64}) {
            for (int32_t stage = c.kinds[0].dtype == MP_DTYPE_NONE ? 0 : 1; stage <= 3; ++stage) {
                mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
                sharding.stage = stage == 0 ? MP_SHARDING_STAGE_0 : stage;
                sharding.kind = c.kind;
                sharding.bucket_elements = 1 << 20;
                const auto plan = [&](int32_t rank) {
                    mp_memory_report one = MP_MEMORY_REPORT_INIT;
                    EXPECT_TRUE(succeeded(mp_recipe_plan_tensors(
                        recipe, nullptr, tensors.data(), static_cast<int64_t>(tensors.size()),
                        &sharding, rank, ranks, &one, nullptr)));
                    return one;
                };
                mp_memory_report most = plan(0);
                for (int32_t rank = 1; rank < ranks; ++rank) {
                    const mp_memory_report one = plan(rank);
                    most = one.total_bytes > most.total_bytes ? one : most;
                }
                expect_equal(plan(-1), most,
                             c.recipe + (", stage " + std::to_string(stage)) + ", of " +
                                 std::to_string(ranks));
                ++compared;
            }
        }
    }
    EXPECT_GE(compared, 200);
}

TEST(PlanTensors, RefuseWhatCannotBe) {
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "bf16_mixed");
    mp_memory_report report = MP_MEMORY_REPORT_INIT;
    mp_comm_traffic traffic = MP_COMM_TRAFFIC_INIT;
    mp_planned_tensor tensors[2] = {MP_PLANNED_TENSOR_INIT, MP_PLANNED_TENSOR_INIT};
    const auto plan = [&] {
        return mp_recipe_plan_tensors(recipe, nullptr, tensors, 2, nullptr, 0, 2, &report,
                                      &traffic);
    };
    MP_OK(plan());
    EXPECT_EQ(report.total_bytes + traffic.total_bytes, 0);
    tensors[1].count = -1;
    MP_FAILS(plan(), MP_STATUS_INVALID_ARGUMENT, "-1");
    tensors[1].count = 5;
    tensors[1].weight_dtype = MP_DTYPE_FP16;
    MP_FAILS(plan(), MP_STATUS_INVALID_DTYPE, "fp16", "or fp8 codes");
    tensors[1].weight_dtype = MP_DTYPE_FP8_E4M3;
    MP_FAILS(plan(), MP_STATUS_INVALID_DTYPE, "weight.gather.codes");
    tensors[1].flags = MP_PARAM_FROZEN;
    MP_OK(plan());
    tensors[1].weight_dtype = MP_DTYPE_INT8;
    MP_FAILS(plan(), MP_STATUS_INVALID_DTYPE, "frozen weight is int8");
    tensors[1].flags = MP_PARAM_FROZEN | MP_PLANNED_GRAD_LENT;
    tensors[1].weight_dtype = MP_DTYPE_FP32;
    MP_FAILS(plan(), MP_STATUS_INVALID_ARGUMENT, "MP_PLANNED_GRAD_LENT", "frozen");
    tensors[1].flags = MP_PLANNED_GRAD_LENT;
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    desc.flags = MP_OPTIMIZER_OFFLOAD | MP_OPTIMIZER_OFFLOAD_GRADS;
    MP_FAILS(mp_recipe_plan_tensors(recipe, &desc, tensors, 2, nullptr, 0, 1, &report, nullptr),
             MP_STATUS_INVALID_ARGUMENT, "MP_OPTIMIZER_OFFLOAD_GRADS");
    desc.flags = MP_OPTIMIZER_GRADS_GIVEN;
    MP_FAILS(mp_recipe_plan_tensors(recipe, &desc, tensors, 2, nullptr, 0, 1, &report, nullptr),
             MP_STATUS_INVALID_ARGUMENT, "MP_OPTIMIZER_GRADS_GIVEN");
    tensors[1].flags = 64;
    MP_FAILS(plan(), MP_STATUS_INVALID_ARGUMENT, "tensors.flags");
    tensors[1].flags = 0;
    tensors[1].weight_dtype = MP_DTYPE_FP32;
    tensors[1].state_formats[0] = "bf17";
    EXPECT_LT(plan(), 0);
    tensors[1].state_formats[0] = nullptr;
    tensors[1].ndim = 9;
    MP_FAILS(plan(), MP_STATUS_INVALID_ARGUMENT, "tensors[1].ndim is 9");
    tensors[1].ndim = 0;
    tensors[1].struct_size = 16;
    MP_FAILS(plan(), MP_STATUS_INVALID_ARGUMENT, "tensors[1]");
    tensors[1].struct_size = sizeof tensors[1];
    traffic.struct_size = 0;
    report.total_bytes = 77;
    MP_FAILS(plan(), MP_STATUS_INVALID_ARGUMENT, "traffic");
    EXPECT_EQ(report.total_bytes, 77); // a failed call changes nothing
    traffic.struct_size = sizeof traffic;
    MP_FAILS(mp_recipe_plan_tensors(recipe, nullptr, nullptr, 1, nullptr, 0, 1, &report, nullptr),
             MP_STATUS_NULL_ARGUMENT, "tensors");
    MP_FAILS(mp_recipe_plan_tensors(recipe, nullptr, tensors, 2, nullptr, 2, 2, &report, nullptr),
             MP_STATUS_INVALID_ARGUMENT, "rank is 2");
    MP_FAILS(mp_recipe_plan_tensors(recipe, nullptr, tensors, 2, nullptr, -2, 2, &report, nullptr),
             MP_STATUS_INVALID_ARGUMENT, "rank is -2");
}

// Scales of blocks are for what is frozen, and lie on a matrix.
TEST(PlanTensors, RefuseBlocksOfWhatHasNone) {
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "bf16_mixed");
    mp_memory_report report = MP_MEMORY_REPORT_INIT;
    mp_planned_tensor tensor = MP_PLANNED_TENSOR_INIT;
    const auto plan = [&] {
        return mp_recipe_plan_tensors(recipe, nullptr, &tensor, 1, nullptr, 0, 2, &report, nullptr);
    };
    tensor.count = 15;
    tensor.weight_dtype = MP_DTYPE_INT8;
    tensor.scaling = 10;
    MP_FAILS(plan(), MP_STATUS_INVALID_ARGUMENT, "scaling is 10");
    tensor.scaling = MP_SCALING_MX_1X32;
    MP_FAILS(plan(), MP_STATUS_INVALID_DTYPE, "int8");
    tensor.weight_dtype = MP_DTYPE_FP8_E4M3;
    MP_FAILS(plan(), MP_STATUS_INVALID_ARGUMENT, "MP_PARAM_FROZEN");
    tensor.flags = MP_PARAM_FROZEN;
    MP_FAILS(plan(), MP_STATUS_INVALID_ARGUMENT, "15 elements has 0 columns");
    tensor.columns = 4;
    MP_FAILS(plan(), MP_STATUS_INVALID_ARGUMENT, "must divide");
    tensor.columns = 5;
    MP_OK(plan());
    EXPECT_EQ(report.weight_bytes, 15 + 3);
}
