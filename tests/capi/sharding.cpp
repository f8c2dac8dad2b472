// SPDX-License-Identifier: Apache-2.0
// Sharded optimizers through the C ABI: ranks as threads give the weights of one rank, in every stage. The bits of stages,
// plans and orders are core's and tested there.
#include <array>
#include <chrono>

#include "memory.hpp"
#include "sharded_model.hpp"

using namespace mp_test;

namespace {
constexpr int32_t kRanks = 3;
} // namespace

TEST(Sharding, EveryStageTrainsAsOneRankDoes) {
    ShardedModel alone(nullptr, MP_SHARDING_DESC_INIT);
    for (int32_t step = 0; step < 3; ++step) {
        MP_OK(alone.backward(step)); // says nothing to an ordinary optimizer
        MP_OK(mp_optimizer_step(alone.optimizer, nullptr, nullptr));
    }
    const auto expected = alone.weights();
    for (int32_t stage = 0; stage <= 3; ++stage) {
        for (const int32_t kind : {MP_SHARD_FLAT, MP_SHARD_PER_PARAMETER, MP_SHARD_GREEDY}) {
            run_sharded(kRanks, [&](mp_comm* comm, int32_t /*rank*/) {
                mp_sharding_desc sharding = stage_desc(stage);
                sharding.kind = kind;
                sharding.bucket_elements = 30000;
                ShardedModel model(comm, sharding);
                EXPECT_TRUE(succeeded(mp_optimizer_shard(model.optimizer, nullptr)));
                for (int32_t step = 0; step < 3; ++step) {
                    MP_OK(model.backward(step, step > 0));
                    EXPECT_TRUE(succeeded(mp_optimizer_step(model.optimizer, nullptr, nullptr)));
                }
                // Three equal whole numbers: their sum is exact, their mean is divided in fp32 once.
                const auto weights = model.weights();
                for (std::size_t i = 0; i < weights.size(); ++i) {
                    ASSERT_EQ(weights[i].size(), expected[i].size());
                    if (weights[i].empty()) {
                        continue;
                    }
                    std::vector<float> a(weights[i].size() / sizeof(float));
                    std::vector<float> b(a.size());
                    std::memcpy(a.data(), weights[i].data(), weights[i].size());
                    std::memcpy(b.data(), expected[i].data(), expected[i].size());
                    for (std::size_t k = 0; k < a.size(); ++k) {
                        ASSERT_NEAR(a[k], b[k], 2e-6F) << "parameter " << i << ", element " << k;
                    }
                }
            });
        }
    }
}

TEST(Sharding, SlicesCoverTheParametersAndStatesAreTheirs) {
    run_sharded(kRanks, [](mp_comm* comm, int32_t rank) {
        ShardedModel model(comm, MP_SHARDING_DESC_INIT);
        int64_t start = 0;
        int64_t count = 0;
        EXPECT_TRUE(fails(mp_optimizer_get_slice(model.optimizer, 0, 0, &start, &count),
                          MP_STATUS_BAD_STATE, {"mp_optimizer_shard"}));
        EXPECT_TRUE(succeeded(mp_optimizer_shard(model.optimizer, nullptr)));
        for (int32_t i = 0; i < kParams; ++i) {
            int64_t covered = 0;
            for (int32_t of = 0; of < kRanks; ++of) {
                EXPECT_TRUE(
                    succeeded(mp_optimizer_get_slice(model.optimizer, i, of, &start, &count)));
                EXPECT_TRUE(count == 0 || start == covered);
                covered += count;
                mp_tensor* state = nullptr;
                if (of == rank && count > 0) {
                    EXPECT_TRUE(
                        succeeded(mp_optimizer_get_state(model.optimizer, i, "exp_avg", &state)));
                    EXPECT_EQ(bytes_of(state).size(), static_cast<std::size_t>(count) * 4);
                    mp_tensor_destroy(state);
                } else if (of == rank && kModelSizes[i] > 0) {
                    EXPECT_TRUE(fails(mp_optimizer_get_state(model.optimizer, i, "exp_avg", &state),
                                      MP_STATUS_UNKNOWN_NAME, {"exp_avg"}));
                }
            }
            EXPECT_EQ(covered, kModelSizes[i]);
        }
        EXPECT_TRUE(fails(mp_optimizer_get_slice(model.optimizer, kParams, 0, &start, &count),
                          MP_STATUS_INVALID_ARGUMENT, {"parameter 4"}));
        EXPECT_TRUE(fails(mp_optimizer_get_slice(model.optimizer, 0, kRanks, &start, &count),
                          MP_STATUS_INVALID_ARGUMENT, {"rank is 3"}));
    });
}

// Ranks 0 and 2, and 1 and 3, hold the same pieces, states of half each.
TEST(Sharding, GroupsHoldACopyEach) {
    mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
    sharding.shard_ranks = 2;
    run_sharded(4, [&](mp_comm* comm, int32_t rank) {
        ShardedModel model(comm, sharding);
        EXPECT_TRUE(succeeded(mp_optimizer_shard(model.optimizer, nullptr)));
        for (int32_t i = 0; i < kParams; ++i) {
            int64_t start[4];
            int64_t count[4];
            for (int32_t of = 0; of < 4; ++of) {
                EXPECT_TRUE(succeeded(
                    mp_optimizer_get_slice(model.optimizer, i, of, &start[of], &count[of])));
            }
            EXPECT_EQ(count[0] + count[1], kModelSizes[i]);
            for (int32_t of = 0; of < 2; ++of) {
                EXPECT_EQ(start[of], start[of + 2]);
                EXPECT_EQ(count[of], count[of + 2]);
            }
        }
        mp_memory_report planned{};
        mp_memory_report held{};
        planned.struct_size = held.struct_size = sizeof planned;
        EXPECT_TRUE(succeeded(mp_recipe_plan_memory_sharded(
            model.recipe, MP_RULE_ADAMW, kModelSizes, kParams, &sharding, rank, 4, &planned)));
        EXPECT_TRUE(succeeded(mp_optimizer_get_memory(model.optimizer, &held)));
        EXPECT_EQ(held.state_bytes[MP_STATE_EXP_AVG], planned.state_bytes[MP_STATE_EXP_AVG]);
        EXPECT_EQ(held.total_bytes, planned.total_bytes);
    });
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "fp32");
    mp_memory_report report{};
    report.struct_size = sizeof report;
    sharding.shard_ranks = 3;
    MP_FAILS(mp_recipe_plan_memory_sharded(recipe, MP_RULE_ADAMW, kModelSizes, kParams, &sharding,
                                           0, 4, &report),
             MP_STATUS_INVALID_ARGUMENT, "shard_ranks is 3", "4 ranks");
}

// Messages that are under way keep the queue that they were begun on.
TEST(Sharding, AQueueMayGoBeforeItsMessages) {
    run_sharded(2, [](mp_comm* comm, int32_t /*rank*/) {
        for (const bool steps : {false, true}) {
            ShardedModel model(comm, stage_desc(2));
            EXPECT_TRUE(succeeded(mp_optimizer_shard(model.optimizer, nullptr)));
            model.backward(0, false);
            mp_queue* queue = nullptr;
            EXPECT_TRUE(succeeded(mp_queue_create(model.context, &queue)));
            EXPECT_TRUE(succeeded(mp_optimizer_end_microbatch(model.optimizer, queue)));
            mp_queue_destroy(queue);
            if (steps) {
                EXPECT_TRUE(succeeded(mp_optimizer_step(model.optimizer, nullptr, nullptr)));
            }
            EXPECT_TRUE(succeeded(mp_comm_barrier(comm, nullptr))); // nobody leaves before
        }
    });
}

// Gathers end in the order in which they began; who waits for a late one has all before it.
TEST(Sharding, GathersThatBeginOneByOneAreWaitedForInAnyOrder) {
    run_sharded(2, [](mp_comm* comm, int32_t /*rank*/) {
        ShardedModel model(comm, stage_desc(3));
        EXPECT_TRUE(succeeded(mp_optimizer_shard(model.optimizer, nullptr)));
        for (const std::vector<int32_t>& order :
             {std::vector<int32_t>{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 2, 3, 0, 1, 0}}) {
            for (int32_t i = 0; i < kParams; ++i) {
                EXPECT_TRUE(succeeded(mp_optimizer_gather_begin(model.optimizer, nullptr, &i, 1)));
            }
            for (const int32_t i : order) {
                EXPECT_TRUE(succeeded(mp_optimizer_gather_wait(model.optimizer, nullptr, &i, 1)));
                const auto count = static_cast<std::size_t>(kModelSizes[i]);
                EXPECT_EQ(values_of(model.context, model.params[static_cast<std::size_t>(i)]),
                          numbers(count, static_cast<uint64_t>(i + 1)));
            }
            for (const int32_t i : order) { // twice is as once
                EXPECT_TRUE(succeeded(mp_optimizer_gather_free(model.optimizer, nullptr, &i, 1)));
            }
        }
    });
}

// A rank with one slot may say both: that each gradient is ready, and that the micro-batch is over.
TEST(Sharding, TheEndOfTheOnlyMicrobatchSaysNothingNew) {
    for (const int32_t order : {MP_COMM_ORDER_RANK, MP_COMM_ORDER_TREE, MP_COMM_ORDER_EXACT}) {
        for (int32_t stage = 0; stage <= 2; ++stage) {
            std::vector<std::vector<unsigned char>> results[2];
            for (const bool ends : {false, true}) {
                run_sharded(2, [&](mp_comm* comm, int32_t rank) {
                    mp_sharding_desc sharding = stage_desc(stage);
                    sharding.order = order;
                    sharding.bucket_elements = 30000;
                    ShardedModel model(comm, sharding);
                    EXPECT_TRUE(succeeded(mp_optimizer_shard(model.optimizer, nullptr)));
                    for (int64_t step = 0; step < 2; ++step) {
                        EXPECT_TRUE(succeeded(model.backward(step, true)));
                        if (ends) {
                            EXPECT_TRUE(
                                succeeded(mp_optimizer_end_microbatch(model.optimizer, nullptr)));
                        }
                        EXPECT_TRUE(
                            succeeded(mp_optimizer_step(model.optimizer, nullptr, nullptr)));
                    }
                    for (int32_t i = 0; rank == 0 && i < kParams; ++i) {
                        results[ends ? 1 : 0].push_back(
                            bytes_of(model.params[static_cast<std::size_t>(i)]));
                    }
                });
            }
            EXPECT_EQ(results[0], results[1]) << "order " << order << ", stage " << stage;
        }
    }
}

TEST(Sharding, TrafficIsCounted) {
    run_sharded(2, [](mp_comm* comm, int32_t /*rank*/) {
        ShardedModel model(comm, MP_SHARDING_DESC_INIT);
        MP_OK(model.backward(0, false));
        EXPECT_TRUE(succeeded(mp_optimizer_step(model.optimizer, nullptr, nullptr)));
        mp_comm_traffic traffic{};
        traffic.struct_size = sizeof traffic;
        EXPECT_TRUE(succeeded(mp_optimizer_get_traffic(model.optimizer, &traffic)));
        // Half of all gradients away, and this rank's half of the weights twice: at the cut and after the step.
        EXPECT_GT(traffic.all_to_all_bytes, 60000 * 4 / 2 - 16384 * 4);
        EXPECT_LT(traffic.all_to_all_bytes, 60000 * 4 / 2 + 16384 * 4 + 4096);
        EXPECT_GT(traffic.total_bytes, traffic.all_to_all_bytes);
    });
}

// Seen from outside: what was begun is finished though nobody makes a call that moves anything.
TEST(Sharding, MessagesMoveWhileTheCallerComputes) {
    run_sharded(2, [](mp_comm* comm, int32_t /*rank*/) {
        for (const uint32_t flags : {0U, MP_SHARDING_NO_PROGRESS_THREAD}) {
            mp_sharding_desc desc = MP_SHARDING_DESC_INIT;
            desc.flags = flags;
            ShardedModel model(comm, desc);
            mp_sharding_progress progress{};
            progress.struct_size = sizeof progress;
            MP_FAILS(mp_optimizer_get_progress(model.optimizer, &progress), MP_STATUS_BAD_STATE,
                     "mp_optimizer_shard");
            EXPECT_TRUE(succeeded(mp_optimizer_shard(model.optimizer, nullptr)));
            EXPECT_EQ(progress_of(model.optimizer).has_thread, flags == 0 ? 1 : 0);
            EXPECT_EQ(std::string(progress_of(model.optimizer).reason).empty(), flags == 0);
            const int64_t before = progress_of(model.optimizer).begun;
            MP_OK(model.backward(0));
            EXPECT_GT(progress_of(model.optimizer).begun, before);
            for (int ms = 0;
                 ms < 20000 && flags == 0 &&
                 progress_of(model.optimizer).finished < progress_of(model.optimizer).begun;
                 ++ms) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
            const mp_sharding_progress after = progress_of(model.optimizer);
            EXPECT_TRUE(flags != 0 || after.finished == after.begun);
            EXPECT_TRUE(succeeded(mp_optimizer_step(model.optimizer, nullptr, nullptr)));
            const mp_sharding_progress end = progress_of(model.optimizer);
            EXPECT_EQ(end.finished, end.begun);
            EXPECT_EQ(end.finished_by_thread > 0, flags == 0);
        }
    });
}

// Wherever memory ends on one rank, the cut has failed on all, or may be repeated on all.
TEST(Sharding, ACutThatFailedOnOneRankIsNotTakenForOne) {
    int failed = 0;
    bool has_failed = true;
    for (int64_t n = 0; has_failed; ++n) {
        std::array<mp_status, 2> first{}, again{}, step{};
        run_sharded(2, [&](mp_comm* comm, int32_t rank) {
            Counter memory;
            const Context context = make_counted_context(&memory);
            const Recipe recipe = make_recipe(context, "bf16_mixed_dual");
            const mp_sharding_desc sharding = stage_desc(2);
            const Optimizer optimizer =
                make_optimizer_on(comm, context, recipe, nullptr, &sharding);
            add_group(optimizer);
            const Tensor weight = make_tensor(context, MP_DTYPE_FP32, {20000});
            MP_OK(add_param(optimizer, 0, "w", weight));
            memory.left = rank == 1 ? n : INT64_MAX;
            const auto place = static_cast<std::size_t>(rank);
            first.at(place) = mp_optimizer_shard(optimizer, nullptr);
            memory.left = INT64_MAX;
            again.at(place) = mp_optimizer_shard(optimizer, nullptr);
            step.at(place) = mp_optimizer_step(optimizer, nullptr, nullptr);
        });
        has_failed = first[1] < MP_STATUS_OK;
        failed += has_failed ? 1 : 0;
        EXPECT_EQ(first[0] < MP_STATUS_OK, has_failed) << n;
        EXPECT_EQ(again[0] < MP_STATUS_OK, again[1] < MP_STATUS_OK) << n;
        for (std::size_t rank = 0; rank < 2; ++rank) {
            EXPECT_EQ(step.at(rank) < MP_STATUS_OK, again.at(rank) < MP_STATUS_OK) << n;
        }
    }
    EXPECT_GT(failed, 3);
}
