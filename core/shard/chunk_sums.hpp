// SPDX-License-Identifier: Apache-2.0
// ChunkSums: the sums of squares of all ranks' chunks. Every rank knows how many each other one of its group has, and where they
// belong. What is trained has room in the message, counted or not: ranks that count other parameters hear it in the agreement,
// and a rank that cannot go on gives the others what they wait for.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "runtime/segments.hpp"
#include "shard/plan.hpp"

namespace mp::shard {

class ChunkSums {
  public:
    // All of it outlives this.
    ChunkSums(comm::Communicator& comm, const ShardPlan& plan, const std::vector<bool>& is_trained);

    // Of `parameters`, sorted, in the order of one rank that holds all of them; `own` has this rank's, in that order.
    [[nodiscard]] PlacedSums exchange(Stream& stream, const PlacedSums& own,
                                      std::span<const int32_t> parameters);
    // In its place: this rank only gives.
    void decline() const;

  private:
    // Where each of them is in the message: a rank's come one after another from its begin on.
    void place(Stream& stream, std::span<const int32_t> parameters);

    comm::Communicator& comm_;
    const ShardPlan& plan_;
    std::vector<int64_t> bytes_;   // by rank: of what is trained
    std::vector<int64_t> offsets_; // and the end
    std::vector<int32_t> placed_;  // the parameters that places_ are of
    Buffer places_;
    int64_t count_ = 0; // of them
};

} // namespace mp::shard
