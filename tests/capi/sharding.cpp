// SPDX-License-Identifier: Apache-2.0
// Sharded optimizers through the C ABI: ranks as threads give the weights of one rank, in every stage; wrong use is told.
// The bits of stages, plans and orders are core's and tested there.
#include <chrono>
#include <filesystem>
#include <unistd.h>

#include "ranks.hpp"
#include "sharded_model.hpp"

using namespace mp_test;

namespace {

constexpr int32_t kRanks = 3;

// A rank that does not come is not waited for as long as usual.
const mp_comm_desc kSoon = [] {
    mp_comm_desc desc = MP_COMM_DESC_INIT;
    desc.deadline_ms = 20000;
    return desc;
}();

void run_sharded(int32_t count, const std::function<void(mp_comm*, int32_t)>& body) {
    run_ranks(count, body, &kSoon);
}

struct Model : ShardedModel {
    using ShardedModel::ShardedModel;

    std::vector<std::vector<unsigned char>> weights() {
        EXPECT_TRUE(succeeded(gather()));
        std::vector<std::vector<unsigned char>> bytes;
        for (const Tensor& param : params) {
            bytes.push_back(bytes_of(param));
        }
        return bytes;
    }
};

std::uintmax_t bytes_below(const std::string& folder) {
    std::uintmax_t bytes = 0;
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
        bytes += file.is_regular_file() ? file.file_size() : 0;
    }
    return bytes;
}

} // namespace

TEST(Sharding, EveryStageTrainsAsOneRankDoes) {
    Model alone(nullptr, MP_SHARDING_DESC_INIT);
    for (int32_t step = 0; step < 3; ++step) {
        MP_OK(alone.backward(step)); // says nothing to an ordinary optimizer
        MP_OK(mp_optimizer_step(alone.optimizer, nullptr, nullptr));
    }
    const auto expected = alone.weights();
    for (int32_t stage = 0; stage <= 3; ++stage) {
        for (const int32_t kind : {MP_SHARD_FLAT, MP_SHARD_PER_PARAMETER, MP_SHARD_GREEDY}) {
            run_sharded(kRanks, [&](mp_comm* comm, int32_t /*rank*/) {
                mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
                sharding.stage = stage == 0 ? MP_SHARDING_STAGE_0 : stage;
                sharding.kind = kind;
                sharding.bucket_elements = 30000;
                Model model(comm, sharding);
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
        Model model(comm, MP_SHARDING_DESC_INIT);
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
        Model model(comm, sharding);
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
            mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
            sharding.stage = 2;
            Model model(comm, sharding);
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

TEST(Sharding, MemoryThatIsNotThereIsSaid) {
    run_sharded(2, [](mp_comm* comm, int32_t /*rank*/) {
        mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
        sharding.stage = 3;
        Model model(comm, sharding);
        EXPECT_TRUE(succeeded(mp_optimizer_shard(model.optimizer, nullptr)));
        void* data = nullptr;
        EXPECT_TRUE(fails(mp_tensor_get_data(model.params[0], &data), MP_STATUS_BAD_STATE,
                          {"sharded", "mp_optimizer_gather_begin"}));
        const int32_t one[] = {1};
        EXPECT_TRUE(fails(mp_optimizer_gather_wait(model.optimizer, nullptr, one, 1),
                          MP_STATUS_BAD_STATE, {"waited for"}));
        EXPECT_TRUE(succeeded(mp_optimizer_gather_begin(model.optimizer, nullptr, one, 1)));
        EXPECT_TRUE(succeeded(mp_optimizer_gather_wait(model.optimizer, nullptr, one, 1)));
        EXPECT_TRUE(succeeded(mp_tensor_get_data(model.params[1], &data)));
        EXPECT_NE(data, nullptr);
        EXPECT_TRUE(succeeded(mp_optimizer_gather_free(model.optimizer, nullptr, one, 1)));
        EXPECT_TRUE(
            fails(mp_tensor_get_data(model.params[1], &data), MP_STATUS_BAD_STATE, {"sharded"}));
        mp_param_desc late = MP_PARAM_DESC_INIT;
        late.name = "late";
        const Tensor more = make_tensor(model.context, MP_DTYPE_FP32, {3});
        late.param = more;
        EXPECT_TRUE(fails(mp_optimizer_add_param(model.optimizer, 0, &late, nullptr),
                          MP_STATUS_BAD_STATE, {"too late"}));
    });
}

// Gathers end in the order in which they began; who waits for a late one has all before it.
TEST(Sharding, GathersThatBeginOneByOneAreWaitedForInAnyOrder) {
    run_sharded(2, [](mp_comm* comm, int32_t /*rank*/) {
        mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
        sharding.stage = 3;
        Model model(comm, sharding);
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

// Memory of the caller cannot be taken, which all ranks learn alike.
TEST(Sharding, StageTwoNeedsGradientsOfTheLibrary) {
    run_sharded(2, [](mp_comm* comm, int32_t /*rank*/) {
        mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
        sharding.stage = 2;
        Model model(comm, sharding);
        std::vector<float> memory(10);
        mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP32, {10});
        mp_tensor* raw = nullptr;
        EXPECT_TRUE(
            succeeded(mp_tensor_wrap(model.context, &desc, memory.data(), nullptr, nullptr, &raw)));
        const Tensor grad(raw);
        const Tensor param = make_tensor(model.context, MP_DTYPE_FP32, {10});
        mp_param_desc own = MP_PARAM_DESC_INIT;
        own.name = "own";
        own.param = param;
        own.grad = grad;
        EXPECT_TRUE(succeeded(mp_optimizer_add_param(model.optimizer, 0, &own, nullptr)));
        const mp_status status = mp_optimizer_shard(model.optimizer, nullptr);
        EXPECT_TRUE(status == MP_STATUS_BAD_STATE || status == MP_STATUS_PEER_LOST ||
                    status == MP_STATUS_PEER_ERROR)
            << status << " " << mp_last_error_message();
    });
}

TEST(Sharding, WrongDescriptionsAreRefusedBeforeAnyRankIsAsked) {
    const std::vector<Comm> comms = make_comms(2, &kSoon); // one thread asks both: nothing may wait
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "fp32");
    mp_optimizer* optimizer = nullptr;
    const auto create = [&](const mp_sharding_desc& sharding) {
        return mp_optimizer_create_sharded(context, recipe, nullptr, comms[0], &sharding,
                                           &optimizer);
    };
    const mp_sharding_desc good = MP_SHARDING_DESC_INIT;
    mp_sharding_desc bad = good;
    bad.stage = 4;
    MP_FAILS(create(bad), MP_STATUS_INVALID_ARGUMENT, "stage", "4");
    bad = good;
    bad.kind = 9;
    MP_FAILS(create(bad), MP_STATUS_INVALID_ARGUMENT, "MP_SHARD_");
    bad = good;
    bad.order = -1;
    MP_FAILS(create(bad), MP_STATUS_INVALID_ARGUMENT, "MP_COMM_ORDER_");
    bad = good;
    bad.slots = 1;
    bad.order = MP_COMM_ORDER_TREE;
    MP_FAILS(create(bad), MP_STATUS_INVALID_ARGUMENT, "slots");
    bad = good;
    bad.bucket_elements = -5;
    MP_FAILS(create(bad), MP_STATUS_INVALID_ARGUMENT, "bucket_elements");
    bad = good;
    bad.shard_ranks = 3;
    MP_FAILS(create(bad), MP_STATUS_INVALID_ARGUMENT, "shard_ranks is 3", "2 ranks");
    bad = good;
    bad.node_ranks = 2;
    bad.order = MP_COMM_ORDER_EXACT;
    MP_FAILS(create(bad), MP_STATUS_UNSUPPORTED, "node_ranks", "exact");
    bad = good;
    bad.check_every = -1;
    MP_FAILS(create(bad), MP_STATUS_INVALID_ARGUMENT, "check_every");
    bad = good;
    bad.flags = 64;
    MP_FAILS(create(bad), MP_STATUS_INVALID_ARGUMENT, "sharding.flags");
    bad = good;
    bad.wire_dtype = MP_DTYPE_FP8_E4M3;
    bad.order = MP_COMM_ORDER_FAST;
    MP_FAILS(create(bad), MP_STATUS_UNSUPPORTED, "fast");
    MP_FAILS(mp_optimizer_create_sharded(context, recipe, nullptr, nullptr, nullptr, &optimizer),
             MP_STATUS_NULL_ARGUMENT, "comm");
    EXPECT_EQ(optimizer, nullptr);
    mp_optimizer_desc offload = MP_OPTIMIZER_DESC_INIT;
    offload.flags = MP_OPTIMIZER_OFFLOAD;
    MP_FAILS(mp_optimizer_create_sharded(context, recipe, &offload, comms[0], nullptr, &optimizer),
             MP_STATUS_UNSUPPORTED, "OFFLOAD");
}

TEST(Sharding, AnOrdinaryOptimizerHasNoRanks) {
    Model model(nullptr, MP_SHARDING_DESC_INIT);
    mp_comm_traffic traffic{};
    traffic.struct_size = sizeof traffic;
    MP_FAILS(mp_optimizer_shard(model.optimizer, nullptr), MP_STATUS_BAD_STATE,
             "mp_optimizer_create_sharded");
    MP_FAILS(mp_optimizer_get_traffic(model.optimizer, &traffic), MP_STATUS_BAD_STATE, "ranks");
    MP_OK(mp_optimizer_end_microbatch(model.optimizer, nullptr));
    const int32_t wrong[] = {17};
    MP_OK(mp_optimizer_gather_free(model.optimizer, nullptr, wrong,
                                   1)); // nothing to do, nothing read
}

// A rank with one slot may say both: that each gradient is ready, and that the micro-batch is over.
TEST(Sharding, TheEndOfTheOnlyMicrobatchSaysNothingNew) {
    for (const int32_t order : {MP_COMM_ORDER_RANK, MP_COMM_ORDER_TREE, MP_COMM_ORDER_EXACT}) {
        for (int32_t stage = 0; stage <= 2; ++stage) {
            std::vector<std::vector<unsigned char>> results[2];
            for (const bool ends : {false, true}) {
                run_sharded(2, [&](mp_comm* comm, int32_t rank) {
                    mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
                    sharding.stage = stage == 0 ? MP_SHARDING_STAGE_0 : stage;
                    sharding.order = order;
                    sharding.bucket_elements = 30000;
                    Model model(comm, sharding);
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
        Model model(comm, MP_SHARDING_DESC_INIT);
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

mp_sharding_progress progress_of(const Model& model) {
    mp_sharding_progress progress{};
    progress.struct_size = sizeof progress;
    EXPECT_TRUE(succeeded(mp_optimizer_get_progress(model.optimizer, &progress)));
    return progress;
}

// Seen from outside: what was begun is finished though nobody makes a call that moves anything.
TEST(Sharding, MessagesMoveWhileTheCallerComputes) {
    run_sharded(2, [](mp_comm* comm, int32_t /*rank*/) {
        for (const uint32_t flags : {0U, MP_SHARDING_NO_PROGRESS_THREAD}) {
            mp_sharding_desc desc = MP_SHARDING_DESC_INIT;
            desc.flags = flags;
            Model model(comm, desc);
            mp_sharding_progress progress{};
            progress.struct_size = sizeof progress;
            MP_FAILS(mp_optimizer_get_progress(model.optimizer, &progress), MP_STATUS_BAD_STATE,
                     "mp_optimizer_shard");
            EXPECT_TRUE(succeeded(mp_optimizer_shard(model.optimizer, nullptr)));
            EXPECT_EQ(progress_of(model).has_thread, flags == 0 ? 1 : 0);
            EXPECT_EQ(std::string(progress_of(model).reason).empty(), flags == 0);
            const int64_t before = progress_of(model).begun;
            MP_OK(model.backward(0));
            EXPECT_GT(progress_of(model).begun, before);
            for (int ms = 0;
                 ms < 20000 && flags == 0 && progress_of(model).finished < progress_of(model).begun;
                 ++ms) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
            const mp_sharding_progress after = progress_of(model);
            EXPECT_TRUE(flags != 0 || after.finished == after.begun);
            EXPECT_TRUE(succeeded(mp_optimizer_step(model.optimizer, nullptr, nullptr)));
            const mp_sharding_progress end = progress_of(model);
            EXPECT_EQ(end.finished, end.begun);
            EXPECT_EQ(end.finished_by_thread > 0, flags == 0);
        }
    });
}

// A checkpoint of 4 ranks in any stage goes on, on 2 ranks in another stage and on one that shares nothing, with the same
// bits: the gradients of all ranks are equal, so their mean does not depend on their number.
TEST(Sharding, ACheckpointOfSomeRanksGoesOnOnOthers) {
    const auto desc_of = [](int32_t stage, int32_t shard_ranks) {
        mp_sharding_desc desc = MP_SHARDING_DESC_INIT;
        desc.stage = stage == 0 ? MP_SHARDING_STAGE_0 : stage;
        desc.shard_ranks = shard_ranks;
        return desc;
    };
    std::uintmax_t one_copy = 0; // the bytes of a checkpoint
    const auto steps = [](Model& model, int32_t first, int32_t last) {
        for (int32_t step = first; step < last; ++step) {
            MP_OK(model.backward(step));
            EXPECT_TRUE(succeeded(mp_optimizer_step(model.optimizer, nullptr, nullptr)));
        }
    };
    const auto make = [](Model& model, mp_comm* comm) {
        if (comm != nullptr) {
            EXPECT_TRUE(succeeded(mp_optimizer_shard(model.optimizer, nullptr)));
        }
        mp_checkpoint* raw = nullptr;
        EXPECT_TRUE(succeeded(mp_checkpoint_create(model.context, comm, nullptr, &raw)));
        EXPECT_TRUE(succeeded(mp_checkpoint_add_optimizer(raw, model.optimizer)));
        return Checkpoint(raw);
    };
    Model straight(nullptr, MP_SHARDING_DESC_INIT);
    steps(straight, 0, 4);
    const auto wanted = straight.weights();
    for (int32_t run = 0; run < 8; ++run) {
        const int32_t stage = run / 2;
        const int32_t shard_ranks = run % 2 * 2; // then in two groups
        SCOPED_TRACE("stage " + std::to_string(stage) + ", groups of " +
                     std::to_string(shard_ranks));
        const std::string folder =
            ::testing::TempDir() + "mp_sharded_" + std::to_string(::getpid()) + std::to_string(run);
        run_sharded(4, [&](mp_comm* comm, int32_t rank) {
            Model model(comm, desc_of(stage, shard_ranks));
            const Checkpoint checkpoint = make(model, comm);
            steps(model, 0, 2);
            EXPECT_TRUE(
                succeeded(mp_checkpoint_save(checkpoint, folder.c_str(), 2, MP_SAVE_BACKGROUND)));
            steps(model, 2, 4); // while it is written
            EXPECT_TRUE(succeeded(mp_checkpoint_wait(checkpoint)));
            EXPECT_EQ(model.weights(), wanted) << "rank " << rank;
            EXPECT_TRUE(succeeded(mp_checkpoint_load(checkpoint, folder.c_str(), 0, nullptr)));
            steps(model, 2, 4);
            EXPECT_EQ(model.weights(), wanted) << "rank " << rank << " again";
        });
        const std::uintmax_t bytes = bytes_below(folder);
        one_copy = run == 0 ? bytes : one_copy;
        EXPECT_LT(bytes, one_copy + one_copy / 8) << "replicas write nothing again";
        run_sharded(2, [&](mp_comm* comm, int32_t rank) {
            Model model(comm, desc_of(3 - stage, shard_ranks == 0 ? 1 : 0));
            const Checkpoint checkpoint = make(model, comm);
            EXPECT_TRUE(succeeded(
                mp_checkpoint_load(checkpoint, folder.c_str(), MP_LOAD_VERIFY_ALL, nullptr)));
            steps(model, 2, 4);
            EXPECT_EQ(model.weights(), wanted) << "rank " << rank << " of 2";
        });
        Model alone(nullptr, MP_SHARDING_DESC_INIT);
        const Checkpoint checkpoint = make(alone, nullptr);
        MP_OK(mp_checkpoint_load(checkpoint, folder.c_str(), 0, nullptr));
        steps(alone, 2, 4);
        EXPECT_EQ(alone.weights(), wanted);
        std::filesystem::remove_all(folder);
    }
}
