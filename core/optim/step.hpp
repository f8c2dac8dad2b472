// SPDX-License-Identifier: Apache-2.0
// A step in its phases. They are one text for one rank and for many, for states on the device and elsewhere, for an optimizer and
// for arrays of the caller's:
//   reduce   gradients are summed by their owners; a failure leaves no trace
//   measure  what will write is chosen, and the gradients are read; nothing has changed
//   agree    the only agreement of the ranks: after it nothing fails until all slices are written
//   decide   on the device: whether the step is taken, and the scalars of each group
//   apply    each work writes its arrays, each participant ends its step
//   publish  every rank gets the new weights; repeatable from the owners' slices
#pragma once

#include <span>

#include "optim/step_memory.hpp"
#include "optim/step_ranks.hpp"

namespace mp::optim {

// Arrays that a step writes in one way: segments on the device, say, or segments that come from the host.
class StepWork {
  public:
    StepWork() = default;
    StepWork(const StepWork&) = delete;
    StepWork& operator=(const StepWork&) = delete;
    virtual ~StepWork() = default;

    // Finds what will write, before anything has changed; throws where nothing can.
    virtual void choose(Stream& stream, const StepMemory& memory, const StepOptions& options) = 0;
    // After the decision, which `memory` has.
    virtual void apply(Stream& stream, const StepMemory& memory, const StepOptions& options) = 0;
};

// A step over segments on the device, by one launch. The plan outlives it.
class SegmentWork final : public StepWork {
  public:
    explicit SegmentWork(const SegmentPlan& plan) : plan_(plan) {}
    void choose(Stream& stream, const StepMemory& memory, const StepOptions& options) override;
    void apply(Stream& stream, const StepMemory& memory, const StepOptions& options) override;

  private:
    const SegmentPlan& plan_;
    const Candidate* chosen_ = nullptr;
};

struct Step {
    const StepMemory& memory;
    // All gradients in the order of parameters: the norm has the same bits whatever works on them.
    const SegmentPlan& gradients;
    std::span<StepWork* const> work;
    std::span<StepParticipant* const> participants;
    scaler::LossScaler* scaler; // or null
    StepOptions options;
    Stream* host =
        nullptr; // what works on `gradients` where they are in host memory beside the device's
};
// Up to the decision. Where it throws nothing has changed.
void decide_step(Stream& stream, const Step& step, StepRanks& ranks);
// After all arrays were written.
void end_step(Stream& stream, const Step& step, StepRanks& ranks);
void run_step(Stream& stream, const Step& step, StepRanks& ranks);

} // namespace mp::optim
