// SPDX-License-Identifier: Apache-2.0
// Over NCCL: handles that come late, ranks that give up or never come, captures, and memory of both sides.
#include "simulated_nccl.hpp"

#include <atomic>

namespace mp::test {
namespace {

using SimulatedNcclFaults = SimulatedNccl;

TEST_P(SimulatedNcclFaults, ASplitThatARankDoesNotComeToEnds) {
    std::atomic<int32_t> over = 0;
    run(
        GetParam(),
        [&](Rank& rank) {
            if (rank.number == 0) { // comes when the others have given up
                while (over != rank.count - 1) {
                    std::this_thread::yield();
                }
            } else {
                mp_comm* group = nullptr;
                MP_FAILS(mp_comm_split(rank.comm, 0, 0, &group), MP_STATUS_TIMEOUT, "300 ms");
                EXPECT_EQ(group, nullptr);
                EXPECT_LT(mp_comm_barrier(rank.comm, nullptr), MP_STATUS_OK);
                ++over;
            }
        },
        300);
}

TEST_P(SimulatedNcclFaults, ARankThatGivesUpLeavesNothingBehind) {
    run(
        GetParam(),
        [](Rank& rank) {
            const Tensor values = rank.tensor(1000);
            rank.fill(values, 1.0F);
            if (rank.number != 0) {
                mp_comm_request* request = nullptr;
                MP_OK(
                    mp_comm_broadcast(rank.comm, rank.queue, memory_of(values), 4000, 0, &request));
                EXPECT_LT(mp_comm_request_wait(request), MP_STATUS_OK);
                mp_comm_request_destroy(request);
            }
            (void)mp_comm_abort(rank.comm, "a test");
        },
        300);
}

// A rank that goes to one communicator only: the kernels of the other one are behind kernels that never end.
TEST_P(SimulatedNcclFaults, KernelsBehindOthersThatHangEndToo) {
    run(
        GetParam(),
        [](Rank& rank) {
            const Comm part(group_of(rank.comm, 0, rank.number));
            const Tensor first = rank.tensor(1000);
            const Tensor second = rank.tensor(1000);
            mp_comm_request* hangs = nullptr;
            mp_comm_request* behind = nullptr;
            if (rank.number != 0) {
                MP_OK(mp_comm_broadcast(rank.comm, rank.queue, memory_of(first), 4000, 1, &hangs));
            }
            MP_OK(mp_comm_broadcast(part, rank.queue, memory_of(second), 4000, 1, &behind));
            for (mp_comm_request* raw : {behind, hangs}) {
                const Request request(raw);
                if (raw != nullptr) {
                    EXPECT_LT(mp_comm_request_wait(request), MP_STATUS_OK);
                }
            }
            (void)mp_comm_abort(rank.comm, "a test");
        },
        300);
}

// NCCL is given it later, when the stream is in a graph.
TEST_P(SimulatedNcclFaults, WhatWasBegunBeforeACaptureStaysOutOfIt) {
    run(GetParam(), [](Rank& rank) {
        const Tensor values[] = {rank.tensor(1000), rank.tensor(1000)};
        const Tensor mine = rank.tensor(1000);
        cudaStream_t captured = nullptr;
        MP_OK(mp_queue_get_native(rank.queue, &captured, sizeof(cudaStream_t)));
        std::vector<Request> requests;
        for (const Tensor& each : values) { // the second one behind the first, which is still begun
            rank.fill(each, static_cast<float>(rank.number) + 1.0F);
            mp_comm_request* request = nullptr;
            MP_OK(mp_comm_broadcast(rank.comm, rank.queue, memory_of(each), 4000, 1, &request));
            requests.emplace_back(request);
        }
        (void)MP_SIMULATED(cudaSetDevice)(rank.number);
        ASSERT_EQ(MP_SIMULATED(cudaStreamBeginCapture)(captured, cudaStreamCaptureModeThreadLocal),
                  cudaSuccess);
        MP_OK(mp_tensor_copy(mine, rank.queue, values[0]));
        for (const Request& request : requests) {
            MP_OK(mp_comm_request_wait(request));
        }
        Graph graph;
        EXPECT_EQ(graph.capture(captured), cudaSuccess);
        for (const Tensor& each : values) {
            EXPECT_EQ(values_of(rank.context, each), std::vector<float>(1000, 2.0F));
        }
    });
}

TEST_P(SimulatedNcclFaults, ACollectiveInACaptureIsRefused) {
    run(GetParam(), [](Rank& rank) {
        const Tensor values = rank.tensor(1000);
        const Tensor mine = rank.tensor(1000);
        rank.fill(mine, static_cast<float>(rank.number) + 1.0F);
        MP_OK(mp_queue_sync(rank.queue));
        cudaStream_t captured = nullptr;
        MP_OK(mp_queue_get_native(rank.queue, &captured, sizeof(cudaStream_t)));
        (void)MP_SIMULATED(cudaSetDevice)(rank.number);
        ASSERT_EQ(MP_SIMULATED(cudaStreamBeginCapture)(captured, cudaStreamCaptureModeThreadLocal),
                  cudaSuccess);
        MP_FAILS(mp_comm_broadcast(rank.comm, rank.queue, memory_of(values), 4000, 0, nullptr),
                 MP_STATUS_BAD_STATE, "captured");
        MP_OK(mp_tensor_copy(mine, rank.queue, values));
        Graph graph;
        ASSERT_EQ(graph.capture(captured), cudaSuccess);
        ASSERT_EQ(graph.launch(captured), cudaSuccess);
        // Nothing is lost, and what the graph writes comes first.
        MP_OK(mp_comm_broadcast(rank.comm, rank.queue, memory_of(values), 4000, 1, nullptr));
        EXPECT_EQ(values_of(rank.context, values), std::vector<float>(1000, 2.0F));
    });
}

TEST_P(SimulatedNcclFaults, ManagedMemoryIsReadAfterTheWorkOnIt) {
    run(GetParam(), [](Rank& rank) {
        (void)MP_SIMULATED(cudaSetDevice)(rank.number);
        void* memory = nullptr;
        ASSERT_EQ(MP_SIMULATED(cudaMallocManaged)(&memory, 4000, cudaMemAttachGlobal), cudaSuccess);
        mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP32, {1000});
        desc.device_kind = MP_DEVICE_CUDA;
        desc.device_index = rank.number;
        mp_tensor* raw = nullptr;
        MP_OK(mp_tensor_wrap(rank.context, &desc, memory, nullptr, nullptr, &raw));
        {
            const Tensor values(raw);
            rank.fill(values, static_cast<float>(rank.number) + 1.0F);
            MP_OK(mp_comm_broadcast(rank.comm, rank.queue, memory, 4000, 1, nullptr));
            EXPECT_EQ(values_of(rank.context, values), std::vector<float>(1000, 2.0F));
        }
        EXPECT_EQ(MP_SIMULATED(cudaFree)(memory), cudaSuccess);
    });
}

// ---- a step that fails once -------------------------------------------------------------------------

constexpr double kRate = 1e-3; // of the groups

// Whether rank 1 has another rate than the others, which no step agrees on.
void set_rates(const RankTraining& training, int32_t rank, bool differ) {
    for (int32_t group = 0; group < 2; ++group) {
        EXPECT_TRUE(succeeded(mp_optimizer_set_lr(training.optimizer(), group,
                                                  differ && rank == 1 ? 2.0 * kRate : kRate)));
    }
}

// Weights, and every mu, after two steps. Sums of the first gradients are clipped, and those of all are not: what was clipped
// before the step fails is not what the repeated one has to say.
std::vector<unsigned char> train_failing(mp_context* context, mp_comm* comm, int32_t rank,
                                         bool has_failure) {
    RankOptions options = {"bf16_mixed", 2};
    options.shares_scales = true;
    RankTraining training(context, comm, options);
    for (int step = 0; step < 2; ++step) {
        for (const int32_t of : {1, -2}) { // the same on all ranks: twice the values, minus once
            set_rates(training, rank, false);
            training.acquire();
            training.fill(of);
            training.send();
            if (has_failure) {
                set_rates(training, rank, true);
                MP_FAILS(training.try_update(), MP_STATUS_RANK_MISMATCH, "a group's lr");
            }
        }
        set_rates(training, rank, false);
        training.update();
    }
    std::vector<unsigned char> bits = training.weights();
    for (int32_t i = 0; i < 3; ++i) {
        double mu = 0.0;
        EXPECT_TRUE(succeeded(mp_optimizer_get_grad_mu(training.optimizer(), i, &mu)));
        EXPECT_GT(mu, 0.5) << "what a step says is the second sum's, where nothing is clipped";
        bits.insert(bits.end(), reinterpret_cast<unsigned char*>(&mu),
                    reinterpret_cast<unsigned char*>(&mu) + sizeof mu);
    }
    return bits;
}

TEST_P(SimulatedNcclFaults, AFailedAgreementLeavesSharedScalesAsTheyWere) {
    std::vector<std::vector<unsigned char>> expected(static_cast<std::size_t>(GetParam()));
    for (const bool has_failure : {false, true}) {
        run_ranks(GetParam(), [&](mp_comm* comm, int32_t rank) {
            const Context context = make_context(1);
            std::vector<unsigned char> bits = train_failing(context, comm, rank, has_failure);
            std::vector<unsigned char>& first = expected[static_cast<std::size_t>(rank)];
            first = has_failure ? first : bits;
            EXPECT_EQ(bits, first) << "over threads";
        });
        run(GetParam(), [&](Rank& rank) {
            EXPECT_EQ(train_failing(rank.context, rank.comm, rank.number, has_failure),
                      expected[static_cast<std::size_t>(rank.number)])
                << "fails once: " << has_failure;
        });
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, SimulatedNcclFaults, ::testing::Values(4));

} // namespace
} // namespace mp::test
