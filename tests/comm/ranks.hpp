// SPDX-License-Identifier: Apache-2.0
// Runs a body as every rank of a group of threads.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/threads/threads.hpp"

namespace mp::test {

using comm::Communicator;

inline std::vector<std::unique_ptr<Communicator>>
make_ranks(const comm::ThreadRanks& ranks, int64_t deadline_ms = comm::kDefaultDeadlineMs) {
    std::vector<std::unique_ptr<Communicator>> communicators;
    for (auto& transport : comm::make_thread_transports(ranks)) {
        communicators.push_back(std::make_unique<Communicator>(std::move(transport), deadline_ms));
    }
    return communicators;
}

// The body may give its communicator up.
inline void run_ranks(std::vector<std::unique_ptr<Communicator>> communicators,
                      const std::function<void(std::unique_ptr<Communicator>&)>& body) {
    std::vector<std::thread> threads;
    threads.reserve(communicators.size());
    for (auto& communicator : communicators) {
        threads.emplace_back([&body, &communicator] { body(communicator); });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

inline void run_ranks(int32_t count, const std::function<void(Communicator&)>& body) {
    run_ranks(make_ranks({count, 0}),
              [&body](std::unique_ptr<Communicator>& communicator) { body(*communicator); });
}

} // namespace mp::test
