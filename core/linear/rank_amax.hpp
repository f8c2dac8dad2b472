// SPDX-License-Identifier: Apache-2.0
// The amaxes of delayed scaling over ranks (gemm.reduce_amax): all operands of all layers in one message of maxima, by their
// bits, so that NaN and infinity on one rank are seen on every one. Whoever sends the message may add to it.
#pragma once

#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "linear/linear.hpp"

namespace mp::linear {

// Whether a step of these layers is one of training: see Linear::counts_forwards().
bool is_training(std::span<Linear* const> layers);
// Before their end_step(), which it does not wait for.
void settle_amaxes(Stream& stream, std::span<Linear* const> layers);

class RankAmaxes {
  public:
    RankAmaxes() = default;
    // Layers without delayed scaling, or whose recipe keeps amaxes to themselves, are passed over; ranks have the same
    // ones. The others outlive this.
    explicit RankAmaxes(std::span<Linear* const> layers);

    // This step's amaxes of this rank become the bits, those that settle_amaxes() adds among them. Waits, changes nothing.
    void read(Stream& stream);
    // For the exchange: as many on every rank, always; each is to become the largest of all ranks.
    [[nodiscard]] std::span<uint32_t> bits() noexcept { return bits_; }
    // The bits become this step's amaxes, before the layers' end_step. Takes no memory.
    void write(Stream& stream);

  private:
    void copy_states(Stream& stream, CopyKind kind);

    std::vector<Linear*> all_;
    std::vector<Linear*> layers_;                // of them, those that exchange
    std::vector<numerics::DelayedState> states_; // of these, on the host
    std::vector<uint32_t> bits_;
};

// Collective, before the layers' end_step: the exchange in a message of its own. Waits.
void reduce_amaxes(Stream& stream, comm::Communicator& comm, std::span<Linear* const> layers);

} // namespace mp::linear
