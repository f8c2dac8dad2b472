// SPDX-License-Identifier: Apache-2.0
// StepParticipant: what goes along with the steps of an optimizer without writing its arrays: groups, tables, layers, scales, the
// guard, the report. What it remembers between steps goes into checkpoints and comes back from them.
#pragma once

#include "comm/agreement.hpp"
#include "runtime/stream.hpp"

namespace mp::optim {

struct OptimizerCounts; // saved_counts.hpp
struct RestoredCounts;

class StepParticipant {
  public:
    StepParticipant() = default;
    StepParticipant(const StepParticipant&) = default;
    StepParticipant(StepParticipant&&) = default;
    StepParticipant& operator=(const StepParticipant&) = default;
    StepParticipant& operator=(StepParticipant&&) = default;
    virtual ~StepParticipant() = default;

    // Before anything has changed. Throws where there can be no step.
    virtual void begin(Stream& /*stream*/) {}
    // What propose() needs of the device, where ranks agree. May throw; may wait.
    virtual void collect(Stream& /*stream*/) {}
    // As many words on every rank, also where begin() or collect() has failed.
    virtual void propose(comm::Agreement& /*agreement*/) {}
    // After all ranks have agreed.
    virtual void accept(const comm::Agreement& /*agreement*/) {}
    // The arrays are written, or the step is skipped. Part of the apply phase.
    virtual void end(Stream& /*stream*/) {}

    // Writes its part of what a checkpoint keeps. Waits.
    virtual void save(Stream& /*stream*/, OptimizerCounts& /*counts*/) const {}
    // Of numbers of a file, which may come from anybody: throws for what cannot be here, and makes what restore() needs. Waits.
    virtual void prepare_restore(Stream& /*stream*/, RestoredCounts& /*restored*/) const {}
    // After the states were written. Waits.
    virtual void restore(Stream& /*stream*/, RestoredCounts& /*restored*/) {}
};

} // namespace mp::optim
