// SPDX-License-Identifier: Apache-2.0
// ChunkSums: the sums of squares of all ranks' chunks. Every rank knows how many each other one of its group has, and where they
// belong. What is trained has its place in the message, counted or not: ranks that count other parameters hear it in the
// agreement, and a rank that cannot go on gives the others what they wait for.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "runtime/segments.hpp"
#include "shard/plan.hpp"

namespace mp::shard {

class ChunkSums {
  public:
    // All of it outlives this.
    ChunkSums(comm::Communicator& comm, const ShardPlan& plan, std::vector<bool> is_trained)
        : comm_(comm), plan_(plan), is_trained_(std::move(is_trained)) {}

    // Those of `parameters`, sorted, in the order of one rank that holds all of them; without these a rank only gives.
    [[nodiscard]] std::vector<double> on_host(std::span<const double> own,
                                              std::span<const int32_t> parameters) const;
    // Nothing where the device does not order messages, or where some of what is trained does not count.
    [[nodiscard]] std::optional<ChunkSumExchange::Placed>
    on_device(Stream& stream, const double* own, std::span<const int32_t> parameters);

  private:
    // By rank the chunks of what is trained, one after another, and the place of each of `parameters` in their order.
    struct Message {
        std::vector<int32_t> numbers; // of all ranks' chunks; -1: it does not count
        std::vector<int64_t> bytes;   // by rank
        std::vector<int64_t> offsets; // and the end
        int32_t count = 0;            // of those that do
    };
    [[nodiscard]] Message message_of(std::span<const int32_t> parameters) const;

    comm::Communicator& comm_;
    const ShardPlan& plan_;
    std::vector<bool> is_trained_;
    // Where all that is trained counts, after the first time: the chunks' places in the message.
    Message whole_;
    Buffer places_;
};

} // namespace mp::shard
