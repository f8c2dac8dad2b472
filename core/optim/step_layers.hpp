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

namespace mp::optim {

class StepLayers {
  public:
    StepLayers() = default;
    // Throws for a layer that is on another device, or listed twice.
    StepLayers(const Device& device, std::vector<std::shared_ptr<linear::Linear>> layers);

    [[nodiscard]] std::size_t size() const noexcept { return layers_.size(); }
    // What ranks must have in common so that their amaxes lie at the same places: sizes and recipes, in order.
    [[nodiscard]] uint64_t definition() const;

    // This rank's amaxes of the step. Waits.
    void read_amaxes(Stream& stream) { amaxes_.read(stream); }
    // As many words on every rank, also where reading failed.
    void propose(comm::Agreement& agreement);
    void accept(const comm::Agreement& agreement); // after reach()
    // The apply phase: takes the agreed amaxes, and ends every layer's step.
    void end_step_as_agreed(Stream& stream);
    // The same without other ranks.
    void end_step(Stream& stream);

    // What the layers have counted as not finite, in their order. Waits.
    [[nodiscard]] std::vector<BadOperand> bad_operands(Stream& stream) const;

  private:
    std::vector<std::shared_ptr<linear::Linear>> layers_;
    std::vector<linear::Linear*> plain_; // the same
    linear::RankAmaxes amaxes_;
    std::size_t first_word_ = 0; // in the agreement
};

} // namespace mp::optim
