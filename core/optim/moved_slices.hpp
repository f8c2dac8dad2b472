// SPDX-License-Identifier: Apache-2.0
// Slices of a parameter's arrays on their way from the ranks that had them to those that get them, where another list of
// parameters is cut elsewhere.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.hpp"
#include "runtime/stream.hpp"
#include "shard/plan.hpp"

namespace mp::optim {

// An array of a slice: in memory of the host's, or of the context's device.
struct SliceArray {
    char* data = nullptr;
    int64_t bytes = 0;
    int64_t unit_bytes = 0; // of one unit of elements; 0: one number for all elements
    bool is_on_host = false;
};

// One parameter's, on this rank. Arrays are the same ones, in the same order, wherever a rank has a slice.
struct MovedSlices {
    std::vector<shard::ShardSlice> from; // by start, over all ranks
    std::vector<shard::ShardSlice> to;
    int64_t unit = kChunkElements;  // elements: slices begin and end at multiples, or with all
    std::vector<SliceArray> before; // none where this rank had no slice
    std::vector<SliceArray> after;
};

// Bytes that this rank needs for what it sends and receives.
int64_t exchange_bytes(const MovedSlices& moved, int32_t rank);

// Collective over the ranks that share a copy, all of which move the same parameter. `memory`: of the stream's device, as much as
// exchange_bytes() says. `host`: the stream of the host's arrays. Waits.
void move_slices(Stream& stream, Stream& host, comm::Communicator& comm, const MovedSlices& moved,
                 void* memory);

} // namespace mp::optim
