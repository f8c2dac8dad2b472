// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "device/select.hpp"
#include "status/guarded.hpp"

namespace mp::optim {
namespace {

void check_step(int64_t step) {
    if (step < 0) {
        fail(Code::invalid_argument, "optimizer: step is %lld; it must be >= 0",
             static_cast<long long>(step));
    }
}

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
    if (options.offload && options.eager_compat) {
        fail(Code::unsupported,
             "optimizer: the eager order of roundings is not for MP_OPTIMIZER_OFFLOAD");
    }
    if (ranks > 0) {
        shard::check_sharding(options.sharding, ranks);
        if (options.eager_compat || options.offload) {
            fail(Code::unsupported, "optimizer: ranks cannot share it with %s",
                 options.offload ? "MP_OPTIMIZER_OFFLOAD" : "MP_OPTIMIZER_EAGER_COMPAT");
        }
    }
}

Optimizer::Optimizer(std::shared_ptr<Context> context, const recipe::Recipe& recipe,
                     const OptimizerOptions& options)
    : context_(std::move(context)), recipe_(recipe), options_(options),
      groups_(recipe, context_->stream().device(), options.eager_compat),
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

void Optimizer::set_grad_scale_tensor(const std::shared_ptr<Tensor>& scale) {
    (void)scalar_address(scale.get(), context_->stream().device(), "grad_scale");
    grad_scale_tensor_ = scale;
}

void Optimizer::set_guard(Stream& stream, const std::optional<GuardOptions>& options) {
    StepGuard next;
    if (options.has_value()) {
        next = StepGuard(stream, *options);
        next.write(stream, guard_.read(stream));
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

void Optimizer::make_plan(Stream& stream) {
    std::vector<UpdateSegment> segments;
    std::vector<OffloadedParameter> offloaded;
    for (int32_t i = 0; i < parameters_.count(); ++i) {
        const Parameter& p = parameters_[i];
        if (!is_enabled(p) || !p.states.has_value()) {
            continue;
        }
        if (options_.offload) {
            offloaded.push_back({p.param, p.grad, p.stepped, parameters_.segment(i)});
        } else {
            segments.push_back(parameters_.segment(i));
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
        TextLine<400> line;
        line.set(
            "optimizer: %d parameter(s) of %lld elements; bytes here: weights %lld, masters %lld, "
            "gradients %lld, first moments %lld, second moments %lld, compensations %lld, sums "
            "over ranks %lld%s",
            parameters_.count(), static_cast<long long>(held.parameter_count),
            static_cast<long long>(held.weight), static_cast<long long>(held.master),
            static_cast<long long>(held.grad), static_cast<long long>(held.exp_avg),
            static_cast<long long>(held.exp_avg_sq), static_cast<long long>(held.compensation),
            static_cast<long long>(held.reduced_grad),
            options_.offload ? "; states are the host's" : "");
        return std::string(line.c_str());
    });
}

// Brings the device's tables up to date; everything that can fail for want of memory happens here.
void Optimizer::refresh(Stream& stream) {
    ParamGroups::Changes& changes = groups_.changes();
    if (changes.plan) {
        make_plan(stream);
        memory_.set_groups(stream, groups_.hyper());
        log_memory();
    } else if (changes.hyper) {
        memory_.set_hyper(stream, groups_.hyper());
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
    options.eager_compat = options_.eager_compat;
    if (guard_.is_on()) {
        guard_.add_to(options);
    }
    options.stochastic_param = recipe_.weight_rounding == recipe::Rounding::stochastic;
    options.stochastic_states[0] = recipe_.exp_avg_rounding == recipe::Rounding::stochastic;
    options.stochastic_states[1] = recipe_.exp_avg_sq_rounding == recipe::Rounding::stochastic;
    return options;
}

void Optimizer::step(Stream& stream, scaler::LossScaler* scaler) {
    if (is_sharded()) {
        step_on_ranks(stream, scaler);
        return;
    }
    check_norm_group();
    guard_.check_loss();
    refresh(stream);
    StepOptions options = step_options();
    const ChunkSumExchange exchange = [&](const std::vector<double>& own) {
        return norm_group_.sums(own, chunks_counted_elsewhere(parameters_, enabled_parameters()));
    };
    options.exchange = norm_group_.exists() ? &exchange : nullptr;
    if (options_.offload) {
        offload_->step(stream, memory_, scaler, options);
    } else {
        memory_.step(stream, plan_, scaler, options);
    }
    remember_step(stream, scaler);
    layers_.end_step(stream);
    touch_weights();
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
                                  ? sharding()->gradient_of(i).ref
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

void Optimizer::touch_weights() {
    for (const Parameter& parameter : parameters_) {
        if (is_enabled(parameter)) {
            parameter.param->touch(); // layers have copies of it
        }
    }
}

numerics::OptimizerState Optimizer::read_state(Stream& stream) const {
    return memory_.read(stream).state;
}

void Optimizer::set_step(Stream& stream, int64_t step) {
    check_step(step);
    refresh(stream); // so that every group has a count
    StepCounts counts = memory_.read(stream);
    counts.state.step = step;
    counts.group_steps.assign(groups_.size(), step);
    memory_.write(stream, counts);
}

int64_t Optimizer::group_step(Stream& stream, int32_t group) const {
    groups_.check(group, false);
    const std::vector<int64_t> steps = memory_.read(stream).group_steps;
    const auto i = static_cast<std::size_t>(group);
    return i < steps.size() ? steps[i] : 0; // added since the last step
}

void Optimizer::set_group_step(Stream& stream, int32_t group, int64_t step) {
    groups_.check(group, false);
    check_step(step);
    refresh(stream);
    StepCounts counts = memory_.read(stream);
    counts.group_steps[static_cast<std::size_t>(group)] = step;
    memory_.write(stream, counts);
}

float Optimizer::grad_mu(int32_t parameter) const {
    (void)parameters_[parameter];
    const bool shares = sharding() != nullptr && sharding()->grad_scales().shares(parameter);
    return shares ? sharding()->grad_scales().mu(parameter) : 0.0F;
}

OptimizerCounts Optimizer::counts(Stream& stream) const {
    const StepCounts read = memory_.read(stream);
    OptimizerCounts counts;
    counts.step = read.state.step;
    counts.skipped_steps = read.state.skipped_steps;
    counts.outlier_steps = read.state.outlier_steps;
    counts.guard = guard_.read(stream);
    counts.seed = options_.seed;
    counts.groups = groups_.hyper();
    counts.group_steps = read.group_steps;
    counts.group_steps.resize(groups_.size()); // groups added since the last step have taken none
    for (int32_t i = 0; sharding() != nullptr && i < parameters_.count(); ++i) {
        counts.grad_mus.push_back(grad_mu(i));
    }
    return counts;
}

void Optimizer::check_counts(const OptimizerCounts& counts) const {
    groups_.check_saved(counts.groups);
    constexpr int64_t kMost = int64_t{1} << 53; // also of a checkpoint's own step
    bool is_bad = counts.step < 0 || counts.step > kMost || counts.skipped_steps < 0 ||
                  counts.skipped_steps > kMost || counts.outlier_steps < 0 ||
                  counts.outlier_steps > counts.skipped_steps ||
                  counts.group_steps.size() != counts.groups.size();
    for (const int64_t step : counts.group_steps) {
        is_bad = is_bad || step < 0 || step > kMost;
    }
    if (is_bad) {
        fail(Code::corrupt_data,
             "optimizer: a saved number of steps is negative, beyond 2^53 or missing");
    }
    for (const std::vector<double>& seen : counts.guard.last) {
        if (!std::all_of(seen.begin(), seen.end(), [](double x) { return std::isfinite(x); })) {
            fail(Code::corrupt_data,
                 "optimizer: a saved value of the guard is not finite; it keeps no such values");
        }
    }
    for (const float mu : counts.grad_mus) {
        if (mu != 0.0F && !numerics::is_mu(mu)) {
            fail(Code::corrupt_data, "optimizer: a saved mu is %g; it lies in [2^-16, 2]",
                 static_cast<double>(mu));
        }
    }
}

RestoredCounts Optimizer::prepare_restore(Stream& stream, OptimizerCounts counts) {
    check_counts(counts);
    refresh(stream); // so that every group has a count
    RestoredCounts restored = {std::move(counts), memory_.read(stream)};
    restored.memory.state.step = restored.counts.step;
    restored.memory.state.skipped_steps = restored.counts.skipped_steps;
    restored.memory.state.outlier_steps = restored.counts.outlier_steps;
    restored.memory.group_steps = restored.counts.group_steps;
    return restored;
}

void Optimizer::restore(Stream& stream, const RestoredCounts& restored) {
    options_.seed = restored.counts.seed;
    groups_.restore(restored.counts.groups);
    memory_.write(stream, restored.memory);
    guard_.write(stream, restored.counts.guard);
    for (int32_t i = 0; i < static_cast<int32_t>(restored.counts.grad_mus.size()); ++i) {
        const float mu = restored.counts.grad_mus[static_cast<std::size_t>(i)];
        if (mu != 0.0F && grad_mu(i) != 0.0F) {
            sharding()->grad_scales().set_mu(i, mu);
        }
    }
    parameters_.publish(stream);
}

} // namespace mp::optim
