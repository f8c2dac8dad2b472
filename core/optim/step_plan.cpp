// SPDX-License-Identifier: Apache-2.0
#include "optim/step_plan.hpp"

#include <utility>

#include "optim/overlap.hpp"
#include "optim/step.hpp"
#include "runtime/select.hpp"

namespace mp::optim {
namespace {

StepCounts counts_after(int64_t step) {
    StepCounts counts;
    counts.state.step = step;
    counts.group_steps = {step};
    return counts;
}

} // namespace

StepPlan::StepPlan(Stream& stream, std::vector<UpdateSegment> segments,
                   std::vector<ParamAmax> amaxes, const numerics::GroupHyper& hyper,
                   const StepOptions& options, int64_t step)
    : hyper_{hyper}, options_(options), plan_(stream, std::move(segments)),
      amaxes_(std::move(amaxes)), memory_(stream, hyper_, counts_after(step)) {}

void StepPlan::set(Stream& stream, const numerics::GroupHyper& hyper, const StepOptions& options) {
    stream.sync(); // an upload of the old ones may still read them
    hyper_.front() = hyper;
    options_ = options;
    memory_.set_hyper(stream, hyper_);
}

void StepPlan::check_apart(const numerics::GroupHyper& hyper, const StepOptions& options,
                           const scaler::LossScaler* scaler) const {
    std::vector<const void*> amaxes;
    amaxes.reserve(amaxes_.size());
    for (const ParamAmax& wanted : amaxes_) {
        amaxes.push_back(wanted.amax);
    }
    StepControls controls;
    controls.lr = hyper.device_lr;
    controls.hyper_values = hyper.device_values;
    controls.grad_scale = options.device_grad_scale;
    controls.grad_mul = options.device_grad_mul;
    controls.step = options.device_step;
    controls.scaler = scaler == nullptr ? nullptr : scaler->state();
    controls.amaxes = amaxes;
    const SegmentTable table = plan_.table();
    check_no_overlap({table.host_segments, static_cast<std::size_t>(table.segment_count)},
                     hyper.rule, options.zero_grad, controls);
}

namespace {

// The largest magnitudes of what a step has written.
class AmaxWork final : public StepWork {
  public:
    explicit AmaxWork(std::span<const ParamAmax> amaxes) : amaxes_(amaxes) {}
    void choose(Stream& stream, const StepMemory& memory, const StepOptions& /*options*/) override {
        for (const ParamAmax& wanted : amaxes_) {
            (void)select(stream.device(), amax_of(wanted, memory));
        }
    }
    void apply(Stream& stream, const StepMemory& memory, const StepOptions& /*options*/) override {
        for (const ParamAmax& wanted : amaxes_) {
            run_op(stream, amax_of(wanted, memory));
        }
    }

  private:
    static AmaxDesc amax_of(const ParamAmax& wanted, const StepMemory& memory) {
        AmaxDesc op{};
        op.kind = OpKind::amax;
        op.source = wanted.param;
        op.result = wanted.amax;
        op.accumulate = true;
        op.skip = memory.skip();
        return op;
    }

    std::span<const ParamAmax> amaxes_;
};

} // namespace

void StepPlan::run(Stream& stream, scaler::LossScaler* scaler) const {
    SegmentWork update(plan_);
    AmaxWork amaxes(amaxes_);
    StepWork* const work[] = {&update, &amaxes};
    StepRanks alone;
    run_step(stream, {memory_, plan_, work, {}, scaler, options_}, alone);
}

} // namespace mp::optim
