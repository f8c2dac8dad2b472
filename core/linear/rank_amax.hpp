// SPDX-License-Identifier: Apache-2.0
// The amaxes of delayed scaling over ranks (gemm.reduce_amax): all operands of all layers in one message of maxima, by their
// bits, so that NaN and infinity on one rank are seen on every one. In device memory, in the order of the stream.
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

    // As many on every rank.
    [[nodiscard]] int64_t count() const noexcept;
    // This step's amaxes of this rank, those that settle_amaxes() adds among them. Changes nothing.
    void read(Stream& stream, float* amaxes) const;
    // These become this step's amaxes, before the layers' end_step. Takes no memory.
    void write(Stream& stream, const float* amaxes) const;

  private:
    std::vector<Linear*> all_;
    std::vector<Linear*> layers_; // of them, those that exchange
};

// Collective, before the layers' end_step: the exchange in a message of its own. Where the device does not order messages it
// waits.
void reduce_amaxes(Stream& stream, comm::Communicator& comm, std::span<Linear* const> layers);

} // namespace mp::linear
