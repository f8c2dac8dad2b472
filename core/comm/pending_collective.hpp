// SPDX-License-Identifier: Apache-2.0
// PendingCollective: what a request and its communicator know of one collective in flight.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace mp::comm {

// What a request holds on to. `over`: nothing of the caller's is touched any more, and `status` is how it ended. It is set
// last, so that whoever sees it may read the rest without the communicator, which may be gone.
struct PendingCollective {
    Communicator* communicator = nullptr;
    Collective collective;
    std::vector<int64_t> numbers; // the collective's arrays
    std::unique_ptr<TransportRequest> request;
    int64_t deadline_ms = 0;
    int64_t deadline_ns = 0;
    std::string site;
    std::atomic<bool> over{false};
    Status status;
    bool is_followed = false; // by a queue
    // Held by whoever uses the communicator through the request: another thread may end that one.
    std::shared_ptr<std::shared_mutex> life;

    // `reason`, with what was done and by whom.
    [[nodiscard]] Status named(const Status& reason) const noexcept;
    // It was not done in time: whose part was not seen.
    [[nodiscard]] Status timed_out() const noexcept;
};

// A function of the transport calls the communicator that it is in.
Status nested() noexcept;

} // namespace mp::comm
