// SPDX-License-Identifier: Apache-2.0
// StepLayers: the layers whose step ends with the optimizer's. Where ranks share the optimizer the layers' amaxes go in
// the step's one agreement; where they are, delayed scales move on in the apply phase, of skipped steps too.
#pragma once

#include <memory>
#include <vector>

#include "comm/agreement.hpp"
#include "linear/linear.hpp"
#include "linear/rank_amax.hpp"
#include "optim/step_history.hpp"
#include "optim/step_participant.hpp"

namespace mp::optim {

class StepLayers final : public StepParticipant {
  public:
    StepLayers() = default;
    // Throws for a layer that is on another device, or listed twice.
    StepLayers(const Device& device, std::vector<std::shared_ptr<linear::Linear>> layers);

    [[nodiscard]] std::size_t size() const noexcept { return layers_.size(); }
    // What ranks must have in common so that their amaxes lie at the same places: sizes and recipes, in order.
    [[nodiscard]] uint64_t definition() const;

    // Takes the place of `before`: whose random bits the layers round by from now on. Those that are no longer among them have
    // nobody's; for those that stay nothing changes.
    void follow(const StepLayers& before, const linear::Trainer& trainer);

    void begin(Stream& stream) override;
    // This rank's amaxes of the step.
    void collect(Stream& stream) override { amaxes_.read(stream, agreed_.as<float>()); }
    void propose(comm::Agreement& agreement) override;
    void accept(const comm::Agreement& /*agreement*/) override { is_agreed_ = true; }
    // Takes the agreed amaxes, where ranks have agreed, and ends every layer's step.
    void end(Stream& stream) override;
    // The seed.
    void restore(Stream& stream, RestoredCounts& restored) override;

    // What the layers have counted as not finite, in their order. Waits.
    [[nodiscard]] std::vector<BadOperand> bad_operands(Stream& stream) const;

  private:
    void set_trainer(const linear::Trainer& trainer) noexcept;

    std::vector<std::shared_ptr<linear::Linear>> layers_;
    std::vector<linear::Linear*> plain_; // the same
    linear::Trainer trainer_;
    linear::RankAmaxes amaxes_;
    Buffer agreed_;          // all of them, of this rank and then of all
    bool is_agreed_ = false; // in this step
};

} // namespace mp::optim
