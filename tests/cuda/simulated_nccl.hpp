// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads, each with a simulated device, over the module's NCCL transport and the NCCL of the tests.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "rank_training.hpp"
#include "simulated/api.hpp"

namespace mp::test {

using namespace mp_test;
using Request = Handle<mp_comm_request, mp_comm_request_destroy>;

inline mp_comm* group_of(mp_comm* comm, int32_t color, int32_t key) {
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

// Rank 0 comes when the others, who do it without, have given up; then the communicator ends.
template <class Body>
void without_rank_0(const Rank& rank, std::atomic<int32_t>& over, const Body& body) {
    if (rank.number != 0) {
        body();
        ++over;
    }
    while (over != rank.count - 1) {
        std::this_thread::yield();
    }
    (void)mp_comm_abort(rank.comm, "a test");
}

inline void* memory_of(mp_tensor* tensor) {
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

} // namespace mp::test
