// SPDX-License-Identifier: Apache-2.0
#include "optim/open_step.hpp"

#include <algorithm>

#include "numerics/bits.hpp"
#include "optim/parameters_checks.hpp"

namespace mp::optim {

void Clipping::propose(comm::Agreement& agreement) {
    shown_.set("%g", max_grad_norm_);
    agreement.must_equal("max_grad_norm", numerics::bits_from_double(max_grad_norm_),
                         shown_.c_str());
}

void LossScale::propose(comm::Agreement& agreement) {
    agreement.must_equal("the loss scaler's kind", scaler_ == nullptr  ? 0
                                                   : scaler_->checks() ? 2
                                                                       : 1);
    const numerics::LossScaleState* const state =
        scaler_ != nullptr ? scaler_->device_state() : nullptr;
    agreement.must_equal_on_device("the loss scale", state != nullptr ? &state->scale : nullptr,
                                   sizeof state->scale);
}

// The report is the first to end: of numbers that the others then forget. Where ranks disagree, the first to propose is named.
OpenStep::OpenStep(const StepOf& of, scaler::LossScaler* scaler, const StepOptions& options)
    : of_(of), options_(options), scaler_(scaler),
      clipping_(of.options.max_grad_norm, of.norm_group, of.parameters), loss_scale_(scaler),
      report_({of.context, of.parameters, of.groups, of.tables, of.layers, of.guard, scaler},
              of.history),
      participants_{&report_,     &of.calls,  &of.groups, &clipping_,      &of.guard,
                    &loss_scale_, &of.tables, &of.layers, &of.grad_scales, &of.layer_passes},
      ranks_(of.parameters.sharding(), of.norm_group, of.parameters,
             of.options.is_sharded() || of.norm_group.exists() ? of.tables.enabled()
                                                               : std::vector<int32_t>(),
             of.guard.hash()) {}

Step OpenStep::step() {
    const bool has_host_grads =
        of_.parameters.lane() != nullptr && !of_.context.stream().device().is_host();
    return {of_.tables.memory(),
            of_.tables.gradients(),
            of_.tables.work(),
            participants_,
            scaler_,
            options_,
            has_host_grads ? &of_.context.host_stream() : nullptr};
}

void OpenStep::run(Stream& stream) {
    if (of_.options.grads_given) {
        fail(Code::bad_state,
             "optimizer: its parameters have no gradients of their own (MP_OPTIMIZER_GRADS_GIVEN); "
             "use mp_optimizer_step_begin, and give them to mp_optimizer_step_params");
    }
    run_step(stream, step(), ranks_);
}

void OpenStep::check_parts(const Stream& stream) const {
    check(stream.queue().refuse_capture("optimizer: a step in parts is not for graphs"));
    const char* const whole =
        of_.options.is_sharded() ? "ranks share it, which reduce and agree first"
        : of_.options.offload    ? "it streams its states itself (MP_OPTIMIZER_OFFLOAD)"
        : of_.norm_group.exists()
            ? "the norm is of other ranks' gradients too (mp_optimizer_set_norm_comm)"
        : options_.max_grad_norm > 0.0 ? "the norm is clipped (max_grad_norm)"
        : of_.guard.is_on()            ? "its guard watches the norm (mp_optimizer_set_guard)"
        : scaler_ != nullptr && scaler_->checks()
            ? "the loss scaler looks for infinities in all of them"
        : options_.check_finite ? "all must be finite (MP_OPTIMIZER_CHECK_FINITE)"
                                : nullptr;
    if (whole != nullptr) {
        fail(Code::unsupported,
             "optimizer: a step in parts is decided before the gradients are there, but %s; %s",
             whole,
             of_.options.grads_given ? "turn that off"
                                     : "turn that off, or take mp_optimizer_step");
    }
}

void OpenStep::begin(Stream& stream) {
    check_parts(stream);
    left_ = of_.tables.enabled();
    decide_step(stream, step(), ranks_);
}

UpdateSegment OpenStep::segment(int32_t parameter, const Tensor* grad) const {
    const Parameter& p = of_.parameters[parameter];
    if (!std::binary_search(left_.begin(), left_.end(), parameter)) {
        fail(Code::bad_state,
             "optimizer: '%s' is not pending in this step: it was written, is frozen or marked as "
             "unused, its group is not enabled, or it was added after the step began",
             p.name.c_str());
    }
    UpdateSegment segment = of_.tables.segment(parameter);
    if (grad != nullptr) {
        check_given(of_.parameters, p, *grad);
        const ArrayRef given = slice_of(*grad);
        segment.grad = {given.data, given.scale_inv, given.dtype(), Coding::plain};
        check_gradient(segment, p.name.c_str());
    } else if (p.grad == nullptr) {
        fail(Code::bad_state,
             "optimizer: '%s' has no gradient of its own (MP_OPTIMIZER_GRADS_GIVEN); give one to "
             "mp_optimizer_step_params, of zeros if need be; before the next step mark what is "
             "unused",
             p.name.c_str());
    }
    return segment;
}

void OpenStep::apply(Stream& stream, std::span<const int32_t> parameters,
                     std::span<const std::shared_ptr<Tensor>> grads) {
    check(stream.queue().refuse_capture("optimizer: a step in parts is not for graphs"));
    std::vector<int32_t> left = left_;
    std::vector<UpdateSegment> segments;
    DisjointArrays<int32_t> zeroed; // gradients that are given
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const Tensor* const grad = grads.empty() ? nullptr : grads[i].get();
        segments.push_back(segment(parameters[i], grad));
        if (options_.zero_grad && grad != nullptr) {
            if (zeroed.find(grad->data(), grad->bytes()) != nullptr) {
                fail(Code::invalid_argument,
                     "optimizer: '%s' is given memory of another one's gradient, which this step "
                     "sets to zero (MP_OPTIMIZER_ZERO_GRAD); step them by two calls",
                     of_.parameters[parameters[i]].name.c_str());
            }
            zeroed.add(grad->data(), grad->bytes(), parameters[i]);
        }
        const auto one = std::lower_bound(left.begin(), left.end(), parameters[i]);
        if (one == left.end() || *one != parameters[i]) {
            fail(Code::invalid_argument, "optimizer: '%s' is named twice",
                 of_.parameters[parameters[i]].name.c_str());
        }
        left.erase(one);
    }
    if (segments.empty()) {
        return;
    }
    parts_.emplace_back(stream, std::move(segments));
    SegmentWork work(parts_.back());
    work.choose(stream, of_.tables.memory(), options_);
    work.apply(stream, of_.tables.memory(), options_);
    left_ = std::move(left);
}

void OpenStep::end(Stream& stream) {
    const std::vector<int32_t> rest = left_;
    apply(stream, rest, {});
    if (!stream.device().is_host()) {
        stream.sync(); // before the parts' tables go; what can fail does so while the step is open
    }
    end_step(stream, step(), ranks_);
}

} // namespace mp::optim
