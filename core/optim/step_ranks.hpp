// SPDX-License-Identifier: Apache-2.0
// StepRanks: the other ranks of one step, as its phases see them: those that share the parameters, and those that hold others
// of the same model. Where there are none of a kind there is nothing to do for it.
#pragma once

#include <span>
#include <vector>

#include "optim/norm_group.hpp"
#include "optim/step_participant.hpp"
#include "runtime/segments.hpp"

namespace mp::optim {

class StepRanks final : private ChunkSumExchange {
  public:
    StepRanks() = default; // this rank is alone
    // `sharding`: null, nobody shares. `enabled`: the parameters that take part. `guard`: StepGuard::hash(). All of it outlives
    // this.
    StepRanks(shard::Sharding* sharding, const NormGroup& others, const Parameters& parameters,
              std::vector<int32_t> enabled, uint64_t guard);
    [[nodiscard]] bool must_agree() const noexcept { return sharding_ != nullptr; }
    void reduce(Stream& stream);
    // Gradients that the host keeps are there. Fails before any has left.
    void collect(Stream& stream) const;
    // How the sums of squares become those of all ranks; null: they are.
    [[nodiscard]] ChunkSumExchange* exchange() noexcept {
        return shares_sums() || others_ != nullptr ? this : nullptr;
    }
    // This rank cannot go on: gives the others what they wait for before they hear it. `measures`: that of this step too.
    void give_up(const Status& own, bool measures);
    // Memory that reach() takes, of this rank alone.
    void reserve(Stream& stream, std::span<StepParticipant* const> participants) const;
    // Throws on every rank where `own` or another rank's is an error, or where they disagree.
    void reach(Stream& stream, std::span<StepParticipant* const> participants, const Status& own);
    void publish(Stream& stream);

  private:
    // Not in stage 0, where every rank has all sums of gradients.
    [[nodiscard]] bool shares_sums() const noexcept {
        return sharding_ != nullptr && sharding_->stage() != 0;
    }
    PlacedSums sums(Stream& stream, const PlacedSums& own) override;

    shard::Sharding* sharding_ = nullptr;
    HostGradients* gradients_ = nullptr; // or null: of parameters that nobody shares
    const NormGroup* others_ = nullptr;
    std::vector<int32_t> enabled_;
    std::vector<bool> elsewhere_; // by chunk
    uint64_t guard_ = 0;
    bool is_summed_ = false;   // the ranks that share the parameters have this one's sums,
    bool is_measured_ = false; // those with other parameters its sum
};

} // namespace mp::optim
