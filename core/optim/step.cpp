// SPDX-License-Identifier: Apache-2.0
#include "optim/step.hpp"

#include "runtime/select.hpp"
#include "status/guarded.hpp"

namespace mp::optim {

void SegmentWork::choose(Stream& stream, const StepMemory& memory, const StepOptions& options) {
    chosen_ = select(stream.device(), make_update(plan_, memory, options)).candidate;
}

void SegmentWork::apply(Stream& stream, const StepMemory& memory, const StepOptions& options) {
    const OptimizerUpdateDesc update = make_update(plan_, memory, options);
    check(chosen_->run(stream.device(), stream.queue(), update));
    note_writes(update, stream.is_captured());
}

namespace {

void measure(Stream& stream, const Step& step, StepRanks& ranks) {
    for (StepParticipant* const participant : step.participants) {
        participant->begin(stream);
    }
    ranks.collect(stream);
    if (ranks.must_agree()) {
        for (StepParticipant* const participant : step.participants) {
            participant->collect(stream);
        }
    }
    for (StepWork* const work : step.work) {
        work->choose(stream, step.memory, step.options);
    }
    if (needs_stats(step.options, step.scaler)) {
        step.gradients.grad_stats(stream, step.memory.state(), ranks.exchange(), step.host);
    }
    check(
        stream.followed().settle()); // what other ranks had to send has come, or this one declines
}

} // namespace

void decide_step(Stream& stream, const Step& step, StepRanks& ranks) {
    ranks.reduce(stream);
    const Status own = guarded("a step", [&]() -> Status {
        measure(stream, step, ranks);
        return {};
    });
    if (!own.ok()) {
        ranks.give_up(own, needs_stats(step.options, step.scaler));
    }
    ranks.reach(stream, step.participants, own);
    step.memory.prepare(stream, step.scaler, step.options);
}

void end_step(Stream& stream, const Step& step, StepRanks& ranks) {
    for (StepParticipant* const participant : step.participants) {
        participant->end(stream);
    }
    ranks.publish(stream);
}

void run_step(Stream& stream, const Step& step, StepRanks& ranks) {
    decide_step(stream, step, ranks);
    for (StepWork* const work : step.work) {
        work->apply(stream, step.memory, step.options);
    }
    end_step(stream, step, ranks);
}

} // namespace mp::optim
