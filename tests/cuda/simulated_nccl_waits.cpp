// SPDX-License-Identifier: Apache-2.0
// Messages over NCCL are ordered by the device: nobody waits on the host but for the agreement of a step, and whoever waits for a
// queue that is behind a rank that never comes has a deadline.
#include "simulated_nccl.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>

namespace mp::test {
namespace {

using SimulatedNcclWaits = SimulatedNccl;

constexpr int64_t kOneBucket = int64_t{1} << 20;

int64_t counted(const Rank& rank, int64_t Control::*number) {
    EXPECT_TRUE(succeeded(mp_comm_barrier(rank.comm, nullptr)));
    const int64_t now = control().*number;
    EXPECT_TRUE(succeeded(mp_comm_barrier(rank.comm, nullptr)));
    return now;
}

void count_waits(const Rank& rank, const RankOptions& options) {
    RankTraining training(rank.context, rank.comm, options);
    training.step(rank.number); // tables, and memory that stays
    training.step(rank.number);
    for (int step = 0; step < 2; ++step) {
        const int64_t before = counted(rank, &Control::syncs);
        training.acquire();
        EXPECT_EQ(counted(rank, &Control::syncs), before) << "gradients get memory";
        training.fill(rank.number);
        const int64_t filled = counted(rank, &Control::syncs);
        const int64_t mallocs = counted(rank, &Control::mallocs);
        training.send();
        EXPECT_EQ(counted(rank, &Control::syncs), filled) << "gradients leave";
        training.update();
        EXPECT_EQ(counted(rank, &Control::syncs), filled) << "a step";
        // In stage 2 gradients come and go in the queue's order. Of several buckets as many have scratch memory as happen to be
        // on their way at once.
        if (options.stage != 2 && options.bucket_elements == kOneBucket) {
            EXPECT_EQ(counted(rank, &Control::mallocs), mallocs) << "cudaFree waits";
        }
    }
}

TEST_P(SimulatedNcclWaits, AStepWaitsForNothingButTheAgreement) {
    for (const char* recipe : {"fp32", "bf16_mixed", "bf16_pure_kahan"}) {
        for (const int32_t stage : {0, 1, 2}) {
            for (const int64_t bucket_elements : {int64_t{1} << 14, kOneBucket}) {
                SCOPED_TRACE(std::string(recipe) + ", stage " + std::to_string(stage));
                run(GetParam(), [&](Rank& rank) {
                    count_waits(rank, {recipe, stage, 0, bucket_elements});
                });
            }
        }
    }
}

// What asks other ranks for more than gradients, weights and the norm.
std::vector<RankOptions> more_that_is_asked() {
    std::vector<RankOptions> all(5);
    all[0].recipe = "fp32";
    all[0].order = MP_COMM_ORDER_EXACT;
    all[1].recipe = "fp16_mixed";
    all[1].has_scaler = true;
    all[2].recipe = "bf16_mixed";
    all[2].check_every = 1;
    all[3].recipe = "bf16_mixed";
    all[3].max_grad_norm = 1.0;
    all[3].has_idle_group = true;
    all[4].recipe = "fp32";
    all[4].shares_scales = true;
    return all;
}

TEST_P(SimulatedNcclWaits, NorDoesOneThatAsksForMore) {
    for (RankOptions options : more_that_is_asked()) {
        for (const int32_t stage : {0, 1, 2}) {
            for (const int64_t bucket_elements : {int64_t{1} << 14, kOneBucket}) {
                options.stage = stage;
                options.bucket_elements = bucket_elements;
                SCOPED_TRACE(options.recipe + ", order " + std::to_string(options.order) +
                             ", stage " + std::to_string(stage));
                run(GetParam(), [&](Rank& rank) { count_waits(rank, options); });
            }
        }
    }
}

TEST_P(SimulatedNcclWaits, WhatIsAskedForMoreHasTheBitsOfTheHost) {
    for (RankOptions options : more_that_is_asked()) {
        for (const int32_t stage : {0, 1, 2, 3}) {
            options.stage = stage;
            SCOPED_TRACE(options.recipe + ", order " + std::to_string(options.order) + ", stage " +
                         std::to_string(stage));
            std::vector<std::vector<unsigned char>> host(static_cast<std::size_t>(GetParam()));
            run_ranks(GetParam(), [&](mp_comm* comm, int32_t rank) {
                host[static_cast<std::size_t>(rank)] = train(make_context(1), comm, options, rank);
            });
            run(GetParam(), [&](Rank& rank) {
                EXPECT_EQ(train(rank.context, rank.comm, options, rank.number),
                          host[static_cast<std::size_t>(rank.number)]);
            });
        }
    }
}

TEST_P(SimulatedNcclWaits, AWeightThatDiffersIsNamed) {
    run(GetParam(), [](Rank& rank) {
        RankOptions options;
        options.recipe = "fp32";
        options.check_every = 1;
        RankTraining training(rank.context, rank.comm, options);
        training.step(rank.number);
        if (rank.number == 2) {
            const std::vector<float> other(5, 1.0F);
            MP_OK(mp_tensor_write(training.weight(0), nullptr, other.data(), 20));
        }
        training.fill(rank.number);
        EXPECT_EQ(training.try_update(), MP_STATUS_RANK_MISMATCH);
        EXPECT_NE(std::string(mp_last_error_message())
                      .find("weights' bits, which the last step "
                            "made equal: rank(s) 0, 1, 3 have"),
                  std::string::npos)
            << mp_last_error_message();
    });
}

TEST_P(SimulatedNcclWaits, NobodyWaitsLongerForALostRankThen) {
    for (RankOptions options : more_that_is_asked()) {
        SCOPED_TRACE(options.recipe + ", order " + std::to_string(options.order));
        std::atomic<int32_t> over = 0;
        run(
            GetParam(),
            [&](Rank& rank) {
                RankTraining training(rank.context, rank.comm, options);
                training.step(rank.number);
                without_rank_0(rank, over, [&] {
                    training.fill(rank.number);
                    EXPECT_EQ(training.try_update(), MP_STATUS_TIMEOUT);
                });
            },
            500);
    }
}

// Backward does not wait for what is on its way: a rank's queue is through with its work before the last rank has sent.
TEST_P(SimulatedNcclWaits, AQueueGoesOnBesideItsBuckets) {
    if (std::getenv("MP_SIMULATED_ONE_QUEUE") != nullptr) {
        GTEST_SKIP() << "here a device does nothing beside a message";
    }
    std::atomic<int32_t> through = 0;
    run(GetParam(), [&](Rank& rank) {
        RankTraining training(rank.context, rank.comm, "fp32", 1);
        training.fill(rank.number);
        while (rank.number == 0 && through != rank.count - 1) {
            std::this_thread::yield();
        }
        training.send();
        if (rank.number != 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5)); // NCCL has the kernels
            EXPECT_TRUE(succeeded(mp_optimizer_end_microbatch(training.optimizer(), nullptr)));
            EXPECT_EQ(mp_context_sync(rank.context), MP_STATUS_OK);
            ++through;
        }
        training.update();
        EXPECT_EQ(mp_context_sync(rank.context), MP_STATUS_OK);
    });
}

// The ways to wait for the work of the default queue: by itself, by an event, by another queue behind it, or to read; what may be
// asked again and again; and memory whose end waits for the whole device, after which the queue still says it.
mp_status wait_by(const Rank& rank, int way, Tensor& other) {
    mp_event* raw = nullptr;
    EXPECT_TRUE(succeeded(mp_event_create(rank.context, &raw)));
    const Event event(raw);
    EXPECT_TRUE(succeeded(mp_event_record(event, nullptr)));
    std::vector<float> values(10);
    mp_status status = MP_STATUS_NOT_READY;
    switch (way) {
    case 0:
        return mp_context_sync(rank.context);
    case 1:
        return mp_event_sync(event);
    case 2:
        EXPECT_TRUE(succeeded(mp_queue_wait_event(rank.queue, event)));
        return mp_queue_sync(rank.queue);
    case 3:
        return mp_tensor_read(other, nullptr, values.data(), 40);
    case 4:
        while (status == MP_STATUS_NOT_READY) {
            status = mp_event_test(event);
        }
        return status;
    default:
        other = Tensor();
        return mp_context_sync(rank.context);
    }
}

// The others fetch weights from rank 0.
using Behind = std::function<void(const Rank&, RankTraining&, Tensor&)>;
void behind_rank_0(Rank& rank, std::atomic<int32_t>& over, const Behind& body) {
    RankTraining training(rank.context, rank.comm, "fp32", 3);
    training.step(rank.number);
    Tensor other = rank.tensor(10);
    without_rank_0(rank, over, [&] {
        const std::array<int32_t, 3> all = {0, 1, 2};
        EXPECT_TRUE(
            succeeded(mp_optimizer_gather_begin(training.optimizer(), nullptr, all.data(), 3)));
        EXPECT_TRUE(
            succeeded(mp_optimizer_gather_wait(training.optimizer(), nullptr, all.data(), 3)));
        body(rank, training, other);
    });
}

TEST_P(SimulatedNcclWaits, WhoeverIsBehindARankThatNeverComesHasADeadline) {
    for (const int way : {0, 1, 2, 3, 4, 5}) {
        SCOPED_TRACE("way " + std::to_string(way));
        std::atomic<int32_t> over = 0;
        const Behind waits = [way](const Rank& rank, RankTraining& /*training*/, Tensor& other) {
            EXPECT_EQ(wait_by(rank, way, other), MP_STATUS_TIMEOUT);
            EXPECT_NE(std::string(mp_last_error_message()).find("(weights)"), std::string::npos)
                << mp_last_error_message();
        };
        run(
            GetParam(), [&](Rank& rank) { behind_rank_0(rank, over, waits); }, 500);
    }
}

// The weights never come, and nobody has waited for them when the optimizer ends.
TEST_P(SimulatedNcclWaits, AnOptimizerThatEndsSwallowsNoFailure) {
    std::atomic<int32_t> over = 0;
    const Behind ends = [](const Rank& rank, RankTraining& training, Tensor& /*other*/) {
        training.end();
        EXPECT_EQ(mp_context_sync(rank.context), MP_STATUS_TIMEOUT);
    };
    run(
        GetParam(), [&](Rank& rank) { behind_rank_0(rank, over, ends); }, 500);
}

TEST_P(SimulatedNcclWaits, CallsMayTakeOneQueueOrAnother) {
    std::vector<std::vector<unsigned char>> expected(static_cast<std::size_t>(GetParam()));
    for (const bool changes : {false, true}) {
        run(GetParam(), [&](Rank& rank) {
            RankTraining training(rank.context, rank.comm, "bf16_pure_kahan", 1);
            for (int step = 0; step < 3; ++step) {
                mp_queue* const other =
                    changes && step != 1 ? static_cast<mp_queue*>(rank.queue) : nullptr;
                training.fill(rank.number, other);
                training.send(other);
                training.update(changes && step == 2 ? nullptr : other);
            }
            MP_OK(mp_queue_sync(rank.queue));
            std::vector<unsigned char>& bits = expected[static_cast<std::size_t>(rank.number)];
            if (changes) {
                EXPECT_EQ(training.weights(), bits);
            } else {
                bits = training.weights();
            }
        });
    }
}

// Memory that comes and goes in a queue's order waits for the device where that has no pool: here weights that never come are
// given back.
TEST_P(SimulatedNcclWaits, MemoryOfNoPoolHasADeadlineToo) {
    control().has_pool = false;
    std::atomic<int32_t> over = 0;
    const Behind gives_back = [](const Rank& rank, RankTraining& training, Tensor& /*other*/) {
        const std::array<int32_t, 3> all = {0, 1, 2};
        EXPECT_TRUE(
            succeeded(mp_optimizer_gather_free(training.optimizer(), nullptr, all.data(), 3)));
        EXPECT_EQ(mp_context_sync(rank.context), MP_STATUS_TIMEOUT)
            << "what failed is told to whoever waits next";
    };
    run(
        GetParam(), [&](Rank& rank) { behind_rank_0(rank, over, gives_back); }, 500);
    control().has_pool = true;
}

// What the step's agreement takes of the transport's memory is there since the parameters were cut, also where it has more to say
// than any message before: a rank without memory could not tell the others.
TEST_P(SimulatedNcclWaits, TheAgreementHasItsMemoryBeforeTheStep) {
    RankOptions options;
    options.recipe = "fp32";
    options.shares_scales = true;
    options.more_groups = 300;
    run(GetParam(), [&](Rank& rank) {
        RankTraining training(rank.context, rank.comm, options);
        const int64_t pinned = counted(rank, &Control::pinned);
        training.step(rank.number);
        EXPECT_EQ(counted(rank, &Control::pinned), pinned);
    });
}

// Weights are still on their way when the optimizer ends, and the communicator with it.
TEST_P(SimulatedNcclWaits, WhatAnEndedOptimizerLeavesIsWhole) {
    std::vector<std::vector<unsigned char>> expected(static_cast<std::size_t>(GetParam()));
    for (const bool ends_at_once : {false, true}) {
        run(GetParam(), [&](Rank& rank) {
            RankTraining training(rank.context, rank.comm, "bf16_pure_kahan", 1);
            training.step(rank.number);
            std::vector<unsigned char>& bits = expected[static_cast<std::size_t>(rank.number)];
            if (ends_at_once) {
                training.end();
                rank.comm = Comm();
                EXPECT_EQ(training.held_weights(), bits);
            } else {
                bits = training.weights();
            }
        });
    }
}

constexpr uint32_t kOnTheHost = MP_OPTIMIZER_OFFLOAD | MP_OPTIMIZER_OFFLOAD_GRADS;

// Rank 0 keeps its last bucket back until sums of the one before, which the others wait for in their steps, are in host memory.
TEST_P(SimulatedNcclWaits, SumsComeToTheHostWhileTheNextBucketIsReduced) {
    if (std::getenv("MP_SIMULATED_ONE_QUEUE") != nullptr) {
        GTEST_SKIP() << "here a device does nothing beside a message";
    }
    std::atomic<int32_t> over = 0;
    const int64_t before = control().arrived; // nothing else comes to pinned memory
    run(
        GetParam(),
        [&](Rank& rank) {
            RankTraining training(rank.context, rank.comm, "fp32", 1, kOnTheHost);
            training.fill(rank.number);
            training.send(nullptr, 1, 3); // buckets have parameters in reverse order
            if (rank.number != 0) {
                training.send(nullptr, 0, 1);
                training.update();
                ++over;
                return;
            }
            while (control().arrived == before && over == 0) {
                std::this_thread::yield();
            }
            EXPECT_GT(control().arrived, before);
            EXPECT_EQ(over, 0);
            training.send(nullptr, 0, 1);
            training.update();
        },
        5000);
}

TEST_P(SimulatedNcclWaits, SumsOnTheHostHaveTheSameBits) {
    for (const char* recipe : {"fp32", "bf16_mixed", "bf16_pure_remainder"}) {
        for (const int32_t stage : {1, 2, 3}) {
            run(GetParam(), [&](Rank& rank) {
                EXPECT_EQ(train(rank.context, rank.comm, recipe, stage, rank.number, kOnTheHost),
                          train(rank.context, rank.comm, recipe, stage, rank.number))
                    << recipe << ", stage " << stage;
            });
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, SimulatedNcclWaits, ::testing::Values(4));

} // namespace
} // namespace mp::test
