// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "comm/capture.hpp"
#include "runtime/select.hpp"
#include "status/guarded.hpp"

namespace mp::optim {
namespace {

ParameterOptions parameter_options(const recipe::Recipe& recipe, const OptimizerOptions& options) {
    const bool is_sharded = options.sharding.comm != nullptr;
    return {recipe.weight, is_sharded && options.sharding.stage > 0 && recipe.fp8.gather,
            options.offload, is_sharded};
}

} // namespace

void check_options(const OptimizerOptions& options, int32_t ranks) {
    if (!(options.max_grad_norm >= 0.0 && options.max_grad_norm < 1e30)) {
        fail(Code::invalid_argument,
             "optimizer: max_grad_norm is %g; it must be 0 (no clipping) or a positive number",
             options.max_grad_norm);
    }
    if (ranks > 0) {
        shard::check_sharding(options.sharding, ranks);
        if (options.offload) {
            fail(Code::unsupported, "optimizer: ranks cannot share it with MP_OPTIMIZER_OFFLOAD");
        }
    }
}

Optimizer::Optimizer(std::shared_ptr<Context> context, const recipe::Recipe& recipe,
                     const OptimizerOptions& options)
    : context_(std::move(context)), recipe_(recipe), options_(options),
      groups_(recipe, context_->stream().device()),
      parameters_(context_, parameter_options(recipe, options)) {
    recipe::check_recipe(recipe_);
    check_options(options_, is_sharded() ? comm().size() : 0);
    if (options_.offload) {
        offload_ = std::make_unique<Offload>(context_);
    }
    memory_ = StepMemory(context_->stream(), {}, {});
}

int32_t Optimizer::add_parameter(Stream& stream, int32_t group, const NewParameter& parameter) {
    groups_.check(group, false);
    check_apart(parameter);
    const int32_t index =
        parameters_.add(stream, group, groups_.recipe(group), groups_.hyper(group).rule, parameter);
    groups_.changes().plan = true;
    return index;
}

void Optimizer::set_max_grad_norm(double max_grad_norm) {
    OptimizerOptions next = options_;
    next.max_grad_norm = max_grad_norm;
    check_options(next, is_sharded() ? comm().size() : 0);
    options_ = next;
}

// Of the numbers that the steps read.
void Optimizer::check_apart(const NewParameter& parameter) const {
    const auto check_number = [&](const Tensor* number, const char* name) {
        for (const Tensor* array : {parameter.param.get(), parameter.grad.get()}) {
            if (number != nullptr && array != nullptr && number->overlaps(*array)) {
                fail(Code::invalid_argument,
                     "optimizer: '%s' overlaps the %s tensor in memory; each needs memory of its "
                     "own",
                     parameter.name.c_str(), name);
            }
        }
    };
    check_number(grad_scale_tensor_.get(), "grad_scale");
    for (const auto& lr : groups_.lr_tensors()) {
        check_number(lr.get(), "lr");
    }
}

void Optimizer::set_lr_tensor(int32_t group, const std::shared_ptr<Tensor>& lr) {
    parameters_.check_number(lr.get(), "lr");
    groups_.set_lr_tensor(group, lr);
}

void Optimizer::set_grad_scale_tensor(const std::shared_ptr<Tensor>& scale) {
    parameters_.check_number(scale.get(), "grad_scale");
    (void)scalar_address(scale.get(), context_->stream().device(), "grad_scale");
    grad_scale_tensor_ = scale;
}

void Optimizer::set_guard(Stream& stream, const std::optional<GuardOptions>& options) {
    StepGuard next = options.has_value() ? StepGuard(stream, *options) : StepGuard();
    next.write(stream, guard_.read(stream));
    if (guard_.loss().has_value()) {
        next.set_loss(*guard_.loss());
    }
    stream.sync(); // the old one's memory is no longer in use
    guard_ = std::move(next);
}

void Optimizer::set_norm_comm(std::shared_ptr<comm::Communicator> comm) {
    norm_group_ = NormGroup(std::move(comm));
}

std::vector<int32_t> Optimizer::enabled_parameters() const {
    std::vector<int32_t> enabled;
    for (int32_t i = 0; i < parameters_.count(); ++i) {
        if (is_enabled(parameters_[i])) {
            enabled.push_back(i);
        }
    }
    return enabled;
}

void Optimizer::check_norm_group() const {
    for (const Parameter& p : parameters_) {
        if (p.counts_elsewhere && !norm_group_.exists()) {
            fail(Code::bad_state,
                 "optimizer: '%s' was added with MP_PARAM_NORM_ELSEWHERE, but there are no other "
                 "ranks to "
                 "count it; see mp_optimizer_set_norm_comm",
                 p.name.c_str());
        }
    }
}

void Optimizer::make_plan(Stream& stream, const Cohorts& cohorts) {
    std::vector<UpdateSegment> segments;
    std::vector<OffloadedParameter> offloaded;
    for (int32_t i = 0; i < parameters_.count(); ++i) {
        const Parameter& p = parameters_[i];
        if (!is_enabled(p) || !p.states.has_value()) {
            continue;
        }
        UpdateSegment segment = parameters_.segment(i);
        segment.group = cohorts.of(i); // a row of the device's tables
        if (options_.offload) {
            offloaded.push_back({p.param, p.grad, p.stepped, segment});
        } else {
            segments.push_back(segment);
        }
    }
    if (options_.offload) {
        offload_->plan(std::move(offloaded));
        return;
    }
    SegmentPlan plan(stream, std::move(segments));
    stream.sync(); // the old plan is no longer in use
    plan_ = std::move(plan);
}

void Optimizer::log_memory() const noexcept {
    context_->log(LogLevel::info, [&] {
        const MemoryReport held = parameters_.memory();
        std::string states;
        for (int k = 0; k < numerics::kStateIdCount; ++k) {
            states.append(numerics::kStateSpecs[k].name).append(" ");
            states.append(std::to_string(held.states[k])).append(", ");
        }
        TextLine<400> line;
        line.set(
            "optimizer: %d parameter(s) of %lld elements; bytes here: weights %lld, masters %lld, "
            "gradients %lld, %scompensations %lld, sums over ranks %lld%s",
            parameters_.count(), static_cast<long long>(held.parameter_count),
            static_cast<long long>(held.weight), static_cast<long long>(held.master),
            static_cast<long long>(held.grad), states.c_str(),
            static_cast<long long>(held.compensation), static_cast<long long>(held.reduced_grad),
            options_.offload ? "; states are the host's" : "");
        return std::string(line.c_str());
    });
}

// Brings the device's tables up to date; everything that can fail for want of memory happens here.
void Optimizer::refresh(Stream& stream) {
    ParamGroups::Changes& changes = groups_.changes();
    if (changes.plan) {
        std::vector<int64_t> steps = memory_.read(stream).group_steps;
        Cohorts next = cohorts_;
        next.extend(groups_, parameters_, steps);
        make_plan(stream, next);
        memory_.set_groups(stream, next.hyper(groups_));
        cohorts_ = std::move(next);
        log_memory();
    } else if (changes.hyper) {
        memory_.set_hyper(stream, cohorts_.hyper(groups_));
    }
    changes = {false, false};
}

StepOptions Optimizer::step_options() const {
    StepOptions options;
    options.seed = options_.seed;
    options.max_grad_norm = options_.max_grad_norm;
    options.device_grad_scale =
        scalar_address(grad_scale_tensor_.get(), context_->stream().device(), "grad_scale");
    options.check_finite = options_.check_finite || norm_group_.exists();
    options.zero_grad = options_.zero_grad;
    if (guard_.is_on()) {
        guard_.add_to(options);
    }
    options.stochastic_param = recipe_.weight_rounding == recipe::RoundingMode::stochastic;
    for (const numerics::GroupHyper& group : groups_.hyper()) {
        const numerics::RuleInfo rule = numerics::rule_info(group.rule);
        for (int k = 0; k < rule.state_count; ++k) {
            options.stochastic_states[k] =
                recipe_.state(rule.states[k]).rounding == recipe::RoundingMode::stochastic;
        }
    }
    return options;
}

namespace {

// A replay of a graph begins with the numbers that the host gave to the step that was captured, and reports none to it.
void check_capture(Stream& stream, const OptimizerOptions& options, const StepGuard& guard,
                   const StepHistory& history) {
    const char* const what =
        options.offload        ? "its states are on the host; make it without MP_OPTIMIZER_OFFLOAD"
        : guard.watches_loss() ? "its guard watches the loss, and would watch this step's again at "
                                 "each replay; watch the gradient norm alone (max_loss_z 0)"
        : history.is_on()      ? "its history waits for what became of the step; end it "
                                 "(mp_optimizer_set_history with 0 steps)"
                               : nullptr;
    if (what != nullptr && stream.is_captured()) {
        fail(Code::bad_state,
             "optimizer: the queue's stream is being captured into a graph, but %s, or take the "
             "step outside of the capture",
             what);
    }
}

} // namespace

void Optimizer::step(Stream& stream, scaler::LossScaler* scaler) {
    if (is_sharded() || norm_group_.exists()) {
        comm::refuse_capture(stream);
    }
    if (is_sharded()) {
        step_on_ranks(stream, scaler);
        return;
    }
    check_capture(stream, options_, guard_, history_);
    check_norm_group();
    guard_.check_loss();
    refresh(stream);
    StepOptions options = step_options();
    const ChunkSumExchange exchange = [&](const std::vector<double>& own) {
        return norm_group_.sums(own, chunks_counted_elsewhere(parameters_, enabled_parameters()),
                                guard_.hash());
    };
    options.exchange = norm_group_.exists() ? &exchange : nullptr;
    if (options_.offload) {
        offload_->step(stream, memory_, scaler, options);
    } else {
        memory_.step(stream, plan_, scaler, options);
    }
    remember_step(stream, scaler);
    layers_.end_step(stream);
}

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
std::string Optimizer::bad_gradient(Stream& stream) const {
    for (const int32_t i : enabled_parameters()) {
        const Tensor& grad = *parameters_[i].grad;
        const TensorRef sum = sharding() != nullptr && parameters_.slice(i).count > 0
                                  ? sharding()->gradient_of(i).elements()
                                  : TensorRef();
        if ((grad.has_memory() && !is_finite(stream, grad.ref())) ||
            (sum.count > 0 && !is_finite(stream, sum))) {
            return "the gradient of '" + parameters_[i].name + "'";
        }
    }
    return "a gradient of another rank";
}

// In the order of a step: what the layers read, the first layer first, then gradients.
BadTensors Optimizer::bad_tensors(Stream& stream) const {
    BadTensors bad;
    bad.operands = layers_.bad_operands(stream);
    const auto found = std::find_if(bad.operands.begin(), bad.operands.end(), [](const auto& b) {
        return std::string_view(b.operand) != "grad_output";
    });
    bad.first = found != bad.operands.end()
                    ? "the " + std::string(found->operand) + " of layer '" + found->layer + "'"
                    : bad_gradient(stream);
    return bad;
}

// Where nobody has to wait to know.
void Optimizer::log_skip(Stream& stream) const noexcept {
    if (!stream.device().is_host() || device_state()->skip == 0) {
        return;
    }
    context_->log(LogLevel::info, [&] {
        const numerics::OptimizerState& state = *device_state();
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

// After the update, before the layers' counts go on. The step is taken: nothing here may make it fail.
void Optimizer::remember_step(Stream& stream, const scaler::LossScaler* scaler) noexcept {
    log_skip(stream);
    const std::optional<double> loss = guard_.loss();
    guard_.forget_loss();
    if (!history_.is_on()) {
        return;
    }
    const Status status = guarded("the history of steps", [&]() -> Status {
        add_to_history(stream, scaler, loss);
        return {};
    });
    if (!status.ok()) {
        context_->log(LogLevel::error, [&] {
            return "optimizer: the history of steps lacks one: " + std::string(status.text());
        });
    }
}

void Optimizer::add_to_history(Stream& stream, const scaler::LossScaler* scaler,
                               std::optional<double> loss) {
    const numerics::OptimizerState state = memory_.read(stream).state;
    StepRecord record;
    record.step = state.step;
    record.outcome = state.skip == 0           ? StepOutcome::taken
                     : state.found_inf != 0.0F ? StepOutcome::non_finite
                                               : StepOutcome::outlier;
    record.loss = loss.value_or(std::numeric_limits<double>::quiet_NaN());
    record.loss_scale = scaler != nullptr ? static_cast<double>(scaler->read(stream).scale) : 1.0;
    record.lr = groups_.size() > 0 ? groups_.hyper(0).lr : 0.0;
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
