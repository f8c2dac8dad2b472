// SPDX-License-Identifier: Apache-2.0
// StepReport: says what became of a step, in the log and in the history, before the layers' counts go on.
#pragma once

#include "optim/step_guard.hpp"
#include "optim/step_history.hpp"
#include "optim/step_layers.hpp"
#include "optim/step_tables.hpp"

namespace mp::optim {

// What of an optimizer a report is about.
struct StepReported {
    const Context& context;
    const Parameters& parameters;
    const ParamGroups& groups;
    const StepTables& tables;
    const StepLayers& layers;
    const StepGuard& guard;
    const scaler::LossScaler* scaler; // or null
};

class StepReport final : public StepParticipant {
  public:
    StepReport(const StepReported& of, StepHistory& history) : of_(of), history_(history) {}
    // Remembers what may be others when it ends.
    void begin(Stream& stream) override;
    // The step is taken: nothing here may make it fail.
    void end(Stream& stream) override;

  private:
    void log_skip(Stream& stream) const noexcept;
    void add_to_history(Stream& stream) const;
    [[nodiscard]] std::string bad_gradient(Stream& stream) const;
    [[nodiscard]] BadTensors bad_tensors(Stream& stream) const;

    StepReported of_;
    double loss_ = 0.0;
    double lr_ = 0.0;
    StepHistory& history_;
};

} // namespace mp::optim
