// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of one process: each copies what the others show it, or reads it there.
#pragma once

#include <memory>
#include <vector>

#include "transport/transport.hpp"

namespace mp::comm {

struct ThreadRanks {
    int32_t count = 1;
    int32_t ranks_per_node = 0; // more than 0: pretends to be several machines
};

// One transport for each rank, to be used by one thread at a time each. Deleting one, or aborting it, is what the
// others see as a lost rank.
std::vector<std::unique_ptr<Transport>> make_thread_transports(const ThreadRanks& ranks);

} // namespace mp::comm
