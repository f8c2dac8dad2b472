// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of the test.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "support.hpp"

namespace mp_test {

using Comm = Handle<mp_comm, mp_comm_destroy>;
using Request = Handle<mp_comm_request, mp_comm_request_destroy>;

inline std::vector<Comm> make_comms(int32_t count, const mp_comm_desc* desc = nullptr) {
    std::vector<mp_comm*> raw(static_cast<std::size_t>(count));
    EXPECT_TRUE(succeeded(mp_comm_create_threads(desc, count, raw.data())));
    std::vector<Comm> comms;
    for (mp_comm* comm : raw) {
        comms.emplace_back(comm);
    }
    return comms;
}

// The body on a thread for each rank, which then destroys its communicator.
inline void run_ranks(int32_t count, const std::function<void(mp_comm*, int32_t)>& body,
                      const mp_comm_desc* desc = nullptr) {
    std::vector<Comm> comms = make_comms(count, desc);
    std::vector<std::thread> threads;
    for (int32_t rank = 0; rank < count; ++rank) {
        threads.emplace_back([&body, rank, own = std::move(comms[static_cast<std::size_t>(rank)])] {
            body(own, rank);
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

} // namespace mp_test
