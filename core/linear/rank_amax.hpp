// SPDX-License-Identifier: Apache-2.0
// The amaxes of delayed scaling over ranks (fp8.reduce_amax): all operands of all layers in one message of maxima, by their
// bits, so that NaN and infinity on one rank are seen on every one. Whoever sends the message may add to it.
#pragma once

#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "linear/scaling_state.hpp"

namespace mp::linear {

class RankAmaxes {
  public:
    RankAmaxes() = default;
    // States without delayed scaling, or whose recipe keeps amaxes to themselves, are passed over; ranks have the same
    // ones. The others outlive this.
    explicit RankAmaxes(std::span<const ScalingState* const> states);

    // This step's amaxes of this rank become the bits. Waits.
    void read(Stream& stream);
    // For the exchange: as many on every rank, always; each is to become the largest of all ranks.
    [[nodiscard]] std::span<uint32_t> bits() noexcept { return bits_; }
    // The bits become this step's amaxes, before the states' end_step. Takes no memory; waits.
    void write(Stream& stream);

  private:
    void copy_slots(Stream& stream, CopyKind kind);

    std::vector<const ScalingState*> states_;
    std::vector<numerics::DelayedSlot> slots_; // of all states, on the host
    std::vector<uint32_t> bits_;
};

// Collective, before the states' end_step: the exchange in a message of its own. Waits.
void reduce_amaxes(Stream& stream, comm::Communicator& comm,
                   std::span<const ScalingState* const> states);

} // namespace mp::linear
