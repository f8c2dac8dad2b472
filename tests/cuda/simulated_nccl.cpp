// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads, each with a simulated device, over the module's NCCL transport and the NCCL of the tests: what must come
// before a collective and what may come after it, one order of kernels, handles that come late, and ranks that give up.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <random>
#include <thread>

#include "rank_training.hpp"
#include "simulated/api.hpp"
#include "simulated/nccl_order.hpp"

namespace mp::test {
namespace {

using namespace mp_test;
using Request = Handle<mp_comm_request, mp_comm_request_destroy>;

mp_comm* group_of(mp_comm* comm, int32_t color, int32_t key) {
    mp_comm* group = nullptr;
    EXPECT_TRUE(succeeded(mp_comm_split(comm, color, key, &group)));
    return group;
}

// A rank: a context on a device of its own, and the communicator of all.
struct Rank {
    Rank(const char* id, int32_t which, int32_t of, int64_t deadline_ms)
        : number(which), count(of) {
        mp_context_desc desc = MP_CONTEXT_DESC_INIT;
        desc.device_kind = MP_DEVICE_CUDA;
        desc.device_index = which;
        mp_context* made = nullptr;
        EXPECT_TRUE(succeeded(mp_context_create(&desc, &made)));
        context = Context(made);
        mp_comm_desc options = MP_COMM_DESC_INIT;
        options.deadline_ms = deadline_ms;
        mp_comm* all = nullptr;
        EXPECT_TRUE(succeeded(mp_comm_create_nccl(context, &options, id, which, of, &all)));
        comm = Comm(all);
        mp_queue* own = nullptr;
        EXPECT_TRUE(succeeded(mp_queue_create(context, &own)));
        queue = Queue(own);
    }
    // Its zeros are there, for any queue.
    [[nodiscard]] Tensor tensor(int64_t elements) const {
        Tensor made = make_tensor(context, MP_DTYPE_FP32, {elements});
        EXPECT_TRUE(succeeded(mp_context_sync(context)));
        return made;
    }
    // On the queue, and not waited for.
    void fill(mp_tensor* tensor, float value) const {
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        EXPECT_TRUE(succeeded(mp_tensor_get_desc(tensor, &desc)));
        const std::vector<float> values(static_cast<std::size_t>(desc.shape[0]), value);
        EXPECT_TRUE(succeeded(mp_tensor_write(tensor, queue, values.data(), 4 * values.size())));
    }

    int32_t number;
    int32_t count;
    Context context;
    Comm comm;
    Queue queue;
};

void* memory_of(mp_tensor* tensor) {
    void* data = nullptr;
    EXPECT_TRUE(succeeded(mp_tensor_get_data(tensor, &data)));
    return data;
}

class SimulatedNccl : public ::testing::TestWithParam<int32_t> {
  protected:
    // The body in a thread for each rank. Nothing of the devices stays behind.
    static void run(int32_t count, const std::function<void(Rank&)>& body,
                    int64_t deadline_ms = 60000) {
        char id[MP_COMM_UNIQUE_ID_BYTES];
        MP_OK(mp_comm_get_nccl_unique_id(id, sizeof id));
        std::vector<std::thread> threads;
        for (int32_t number = 0; number < count; ++number) {
            threads.emplace_back([&, number] {
                Rank rank(id, number, count, deadline_ms);
                if (!::testing::Test::HasFailure()) {
                    body(rank);
                }
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
    }
    void TearDown() override {
        EXPECT_EQ(MP_SIMULATED(mp_simulated_nccl_mistakes)(), 0);
        EXPECT_EQ(control().misuse, 0);
        EXPECT_EQ(control().wrong_context, 0);
    }
};

// ---- the judge of orders --------------------------------------------------------------------------

TEST(SimulatedNcclOrders, OneThatDiffersIsSeen) {
    simulated::NcclOrders orders;
    for (const int64_t communicator : {1, 2, 1}) {
        orders.add(0, communicator);
    }
    for (const int64_t communicator : {1, 3, 2, 1}) { // one more, which the other has not
        orders.add(1, communicator);
    }
    EXPECT_EQ(orders.differences(), 0);
    for (const int64_t communicator : {2, 1}) {
        orders.add(0, communicator);
    }
    for (const int64_t communicator : {1, 2}) {
        orders.add(1, communicator);
    }
    EXPECT_EQ(orders.differences(), 2) << "once for each of the two devices";
}

// ---- collectives at random ----------------------------------------------------------------------

constexpr int64_t kWalkCount = 257; // elements a rank gives

// Collectives of several communicators in flight, of memory that a queue writes right before and reads right after.
class Walk {
  public:
    Walk(Rank& rank, int steps) : rank_(rank), steps_(steps) {
        comms_.emplace_back(group_of(rank.comm, 0, rank.number));
        comms_.emplace_back(group_of(rank.comm, rank.number % 2, -rank.number));
        comms_.emplace_back(group_of(rank.comm, rank.number / 2, rank.number));
    }

    // The same numbers on every rank, so all begin the same; when they wait is each one's own.
    void run() {
        std::minstd_rand common(7);
        std::minstd_rand own(static_cast<unsigned>(rank_.number) + 100);
        for (int step = 0; step < steps_ && !::testing::Test::HasFailure(); ++step) {
            const mp_comm* before = comms_[common() % comms_.size()];
            begin(const_cast<mp_comm*>(before), static_cast<int32_t>(common() % 3), step);
            while (!flights_.empty() && (flights_.size() > 4 || own() % 3 == 0)) {
                end(own() % flights_.size());
            }
        }
        while (!flights_.empty()) {
            end(0);
        }
    }

  private:
    struct Flight {
        int32_t kind = 0;
        int step = 0;
        std::vector<int32_t> members; // of the communicator, as ranks of all
        Tensor source;
        Tensor result;
        std::vector<int64_t> bytes;
        std::vector<int64_t> offsets;
        Request request;
    };

    static float value(int32_t rank, int step) { return static_cast<float>(rank * 1000 + step); }

    [[nodiscard]] std::vector<int32_t> members_of(mp_comm* comm) const {
        std::vector<int32_t> members;
        for (int32_t i = 0; i < rank_.count; ++i) {
            const bool is_in = comm == comms_[0] || (comm == comms_[1] ? i % 2 == rank_.number % 2
                                                                       : i / 2 == rank_.number / 2);
            if (is_in) {
                members.push_back(i);
            }
        }
        if (comm == comms_[1]) {
            std::reverse(members.begin(), members.end()); // by their keys
        }
        return members;
    }

    void begin(mp_comm* comm, int32_t kind, int step) {
        Flight& flight = flights_.emplace_back();
        flight.kind = kind;
        flight.step = step;
        flight.members = members_of(comm);
        const auto size = static_cast<int64_t>(flight.members.size());
        flight.source = rank_.tensor(kWalkCount * (kind == 1 ? 1 : size));
        flight.result = rank_.tensor(kWalkCount * size);
        flight.bytes.assign(static_cast<std::size_t>(size), 4 * kWalkCount);
        for (int64_t i = 0; i < size; ++i) {
            flight.offsets.push_back(4 * kWalkCount * i);
        }
        rank_.fill(kind == 2 ? flight.result : flight.source, value(rank_.number, step));
        mp_comm_request* request = nullptr;
        if (kind == 2) {
            EXPECT_TRUE(succeeded(mp_comm_broadcast(comm, rank_.queue, memory_of(flight.result),
                                                    4 * kWalkCount * size,
                                                    step % static_cast<int32_t>(size), &request)));
        } else {
            mp_comm_exchange exchange = MP_COMM_EXCHANGE_INIT;
            exchange.send = memory_of(flight.source);
            exchange.receive = memory_of(flight.result);
            exchange.send_bytes = exchange.receive_bytes = flight.bytes.data();
            exchange.send_offsets = exchange.receive_offsets = flight.offsets.data();
            EXPECT_TRUE(succeeded((kind == 1 ? mp_comm_all_gather : mp_comm_all_to_all)(
                comm, rank_.queue, &exchange, &request)));
        }
        flight.request = Request(request);
    }

    void end(std::size_t index) {
        const auto at = flights_.begin() + static_cast<std::ptrdiff_t>(index);
        EXPECT_TRUE(succeeded(mp_comm_request_wait(at->request)));
        std::vector<float> expected;
        const std::size_t size = at->members.size();
        for (std::size_t i = 0; i < size; ++i) {
            const std::size_t from = at->kind == 2 ? static_cast<std::size_t>(at->step) % size : i;
            expected.insert(expected.end(), kWalkCount, value(at->members[from], at->step));
        }
        EXPECT_EQ(values_of(rank_.context, at->result), expected)
            << "step " << at->step << ", kind " << at->kind;
        flights_.erase(at);
    }

    Rank& rank_;
    int steps_;
    std::vector<Comm> comms_;
    std::deque<Flight> flights_;
};

TEST_P(SimulatedNccl, CollectivesOfManyCommunicatorsAtRandom) {
    run(GetParam(), [](Rank& rank) { Walk(rank, 60).run(); });
}

// ---- training -------------------------------------------------------------------------------------

TEST_P(SimulatedNccl, TrainsWithTheBitsOfRanksOnTheHost) {
    const int32_t count = GetParam();
    for (const char* recipe : {"bf16_mixed", "bf16_pure_sr"}) {
        for (const int32_t stage : {0, 1, 2, 3}) {
            SCOPED_TRACE(std::string(recipe) + ", stage " + std::to_string(stage));
            std::vector<std::vector<unsigned char>> host(static_cast<std::size_t>(count));
            run_ranks(count, [&](mp_comm* comm, int32_t rank) {
                const Context context = make_context(1);
                host[static_cast<std::size_t>(rank)] = train(context, comm, recipe, stage, rank);
            });
            run(count, [&](Rank& rank) {
                EXPECT_EQ(train(rank.context, rank.comm, recipe, stage, rank.number),
                          host[static_cast<std::size_t>(rank.number)]);
            });
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, SimulatedNccl, ::testing::Values(4, 8));

// ---- what goes wrong ------------------------------------------------------------------------------

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

INSTANTIATE_TEST_SUITE_P(Ranks, SimulatedNcclFaults, ::testing::Values(4));

} // namespace
} // namespace mp::test
