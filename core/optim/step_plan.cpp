// SPDX-License-Identifier: Apache-2.0
#include "optim/step_plan.hpp"

#include <utility>

#include "device/select.hpp"

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

void StepPlan::run(Stream& stream, scaler::LossScaler* scaler) const {
    memory_.step(stream, plan_, scaler, options_);
    for (const ParamAmax& wanted : amaxes_) {
        AmaxDesc op{};
        op.kind = OpKind::amax;
        op.source = wanted.param;
        op.result = wanted.amax;
        op.accumulate = true;
        op.skip = memory_.skip();
        run_op(stream, op);
    }
}

} // namespace mp::optim
