// SPDX-License-Identifier: Apache-2.0
#include "optim/step_report.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "runtime/select.hpp"
#include "status/guarded.hpp"

namespace mp::optim {
namespace {

bool is_finite(Stream& stream, const TensorRef& values) {
    const Scratch largest(stream, sizeof(float));
    AmaxDesc op{};
    op.kind = OpKind::amax;
    op.source = values;
    op.result = static_cast<float*>(largest.data());
    run_op(stream, op);
    float amax = 0.0F;
    stream.copy(&amax, largest.data(), sizeof amax, CopyKind::device_to_host);
    stream.sync();
    return std::isfinite(amax);
}

} // namespace

// The first that is not finite: of this rank's own, or of the sums that it has. Waits.
std::string StepReport::bad_gradient(Stream& stream) const {
    for (const int32_t i : of_.tables.enabled()) {
        const Tensor* const grad = of_.parameters[i].grad.get(); // null: it was given
        const bool has_sum =
            (of_.parameters.sharding() != nullptr || of_.parameters.host_gradients() != nullptr) &&
            of_.parameters.slice(i).count > 0;
        const TensorRef sum = has_sum ? of_.parameters.gradient(i).elements() : TensorRef();
        if ((grad != nullptr && grad->has_memory() && !is_finite(stream, grad->ref())) ||
            (sum.count > 0 && !is_finite(of_.parameters.gradient_stream(stream), sum))) {
            return "the gradient of '" + of_.parameters[i].name + "'";
        }
    }
    return of_.parameters.sharding() != nullptr ? "a gradient of another rank"
                                                : "a gradient that is not here any more";
}

// In the order of a step: what the layers read, the first layer first, then gradients.
BadTensors StepReport::bad_tensors(Stream& stream) const {
    BadTensors bad;
    bad.operands = of_.layers.bad_operands(stream);
    const auto found = std::find_if(bad.operands.begin(), bad.operands.end(), [](const auto& b) {
        return std::string_view(b.operand) != "grad_output";
    });
    bad.first = found != bad.operands.end()
                    ? "the " + std::string(found->operand) + " of layer '" + found->layer + "'"
                    : bad_gradient(stream);
    return bad;
}

// Where nobody has to wait to know.
void StepReport::log_skip(Stream& stream) const noexcept {
    const numerics::OptimizerState& state = *of_.tables.memory().state();
    if (!stream.device().is_host() || state.skip == 0) {
        return;
    }
    of_.context.log(LogLevel::info, [&] {
        const std::string step = "optimizer: step " + std::to_string(state.step + 1) + " skipped: ";
        if (state.found_inf != 0.0F) {
            return step + bad_gradient(stream) + " is not finite";
        }
        TextLine<160> why;
        why.set("its gradient norm lies %.3g and its loss %.3g standard deviations above the mean "
                "of the guard's window",
                state.z[0], state.z[1]);
        return step + why.c_str();
    });
}

void StepReport::begin(Stream& /*stream*/) {
    loss_ = of_.guard.loss().value_or(std::numeric_limits<double>::quiet_NaN());
    lr_ = of_.groups.size() > 0 ? of_.groups.hyper(0).lr : 0.0;
}

void StepReport::end(Stream& stream) {
    log_skip(stream);
    if (!history_.is_on()) {
        return;
    }
    const Status status = guarded("the history of steps", [&]() -> Status {
        add_to_history(stream);
        return {};
    });
    if (!status.ok()) {
        of_.context.log(LogLevel::error, [&] {
            return "optimizer: the history of steps lacks one: " + std::string(status.text());
        });
    }
}

void StepReport::add_to_history(Stream& stream) const {
    const numerics::OptimizerState state = of_.tables.read_state(stream);
    StepRecord record;
    record.step = state.step;
    record.outcome = state.skip == 0           ? StepOutcome::taken
                     : state.found_inf != 0.0F ? StepOutcome::non_finite
                                               : StepOutcome::outlier;
    record.loss = loss_;
    record.loss_scale =
        of_.scaler != nullptr ? static_cast<double>(of_.scaler->read(stream).scale) : 1.0;
    record.lr = lr_;
    record.grad_norm = state.grad_norm;
    record.grad_mul = state.grad_mul;
    record.grad_norm_z = state.z[0];
    record.loss_z = state.z[1];
    history_.add(record);
    if (record.outcome != StepOutcome::non_finite || history_.has_bad()) {
        return;
    }
    history_.set_bad(bad_tensors(stream));
    check(history_.write());
}

} // namespace mp::optim
