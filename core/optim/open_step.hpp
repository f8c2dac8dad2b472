// SPDX-License-Identifier: Apache-2.0
// OpenStep: one step of an optimizer, with all that goes along with it. Taken at once by run(); or begun, which decides it, then
// its arrays are written as their gradients come, and ended.
#pragma once

#include <array>
#include <list>
#include <vector>

#include "optim/grad_scales.hpp"
#include "optim/layer_passes.hpp"
#include "optim/options.hpp"
#include "optim/step.hpp"
#include "optim/step_calls.hpp"
#include "optim/step_report.hpp"

namespace mp::optim {

// The norm that gradients are clipped to, and whose gradients count in it.
class Clipping final : public StepParticipant {
  public:
    Clipping(double max_grad_norm, const NormGroup& others, const Parameters& parameters)
        : max_grad_norm_(max_grad_norm), others_(others), parameters_(parameters) {}
    void begin(Stream& /*stream*/) override { others_.check_counted(parameters_); }
    void propose(comm::Agreement& agreement) override;

  private:
    double max_grad_norm_;
    const NormGroup& others_;
    const Parameters& parameters_;
    TextLine<32> shown_;
};

class LossScale final : public StepParticipant {
  public:
    explicit LossScale(const scaler::LossScaler* scaler) : scaler_(scaler) {}
    void propose(comm::Agreement& agreement) override;

  private:
    const scaler::LossScaler* scaler_; // or null
};

// What of an optimizer its steps go through, which outlives them.
struct StepOf {
    const Context& context;
    const OptimizerOptions& options;
    ParamGroups& groups;
    const Parameters& parameters;
    StepTables& tables;
    const NormGroup& norm_group;
    StepGuard& guard;
    StepHistory& history;
    StepLayers& layers;
    LayerPasses& layer_passes;
    GradScales& grad_scales;
    StepCalls& calls;
};

class OpenStep {
  public:
    // `scaler`: or null.
    OpenStep(const StepOf& of, scaler::LossScaler* scaler, const StepOptions& options);
    OpenStep(const OpenStep&) = delete; // its parts know each other
    OpenStep& operator=(const OpenStep&) = delete;
    ~OpenStep() = default;

    // Where ranks share the parameters: memory of messages that this rank would miss where all agree already.
    void reserve(Stream& stream) const { ranks_.reserve(stream, participants_); }
    // Collective where ranks share the parameters.
    void run(Stream& stream);

    // Throws, and nothing has changed, where the decision needs all gradients.
    void begin(Stream& stream);
    // Writes these parameters, whose gradients are final: their own, or, where there are `grads`, those, one for each. Throws,
    // and has written none, for what has no part in the step, has been written, or has no gradient.
    void apply(Stream& stream, std::span<const int32_t> parameters,
               std::span<const std::shared_ptr<Tensor>> grads);
    // What is left is written now. Throws, and the step stays open, where that has no gradient of its own.
    void end(Stream& stream);

  private:
    [[nodiscard]] Step step();
    void check_parts(const Stream& stream) const;
    // The arrays of one that can be written now.
    [[nodiscard]] UpdateSegment segment(int32_t parameter, const Tensor* grad) const;

    StepOf of_;
    StepOptions options_;
    scaler::LossScaler* scaler_; // or null
    Clipping clipping_;
    LossScale loss_scale_;
    StepReport report_;
    std::array<StepParticipant*, 10> participants_;
    StepRanks ranks_;
    std::vector<int32_t> left_;    // to be written, sorted
    std::list<SegmentPlan> parts_; // that the device may still read
};

} // namespace mp::optim
