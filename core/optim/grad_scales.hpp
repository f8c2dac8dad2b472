// SPDX-License-Identifier: Apache-2.0
// GradScales: the scales under which ranks reduce gradients as codes, where they do, in steps and checkpoints of an optimizer.
#pragma once

#include <vector>

#include "optim/parameters.hpp"
#include "optim/step_participant.hpp"

namespace mp::optim {

class GradScales final : public StepParticipant {
  public:
    // `parameters` outlives this.
    explicit GradScales(const Parameters& parameters) : parameters_(parameters) {}

    // FP8-LM's factor of a gradient that ranks reduce under a shared scale; 0 where it is not.
    [[nodiscard]] float mu(int32_t parameter) const;
    void collect(Stream& stream) override;
    void propose(comm::Agreement& agreement) override;
    void accept(const comm::Agreement& agreement) override;

    // By parameter: mu, 0 where it has none or no step has moved it.
    void save(Stream& stream, OptimizerCounts& counts) const override;
    void prepare_restore(Stream& stream, RestoredCounts& restored) const override;
    void restore(Stream& stream, RestoredCounts& restored) override;

  private:
    const Parameters& parameters_;
    std::vector<float> kept_; // of a checkpoint, those that have no use here
};

} // namespace mp::optim
