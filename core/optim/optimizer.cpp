// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.hpp"

#include "optim/state_values.hpp"
#include "recipe/keys.hpp"
#include "system/fnv.hpp"

namespace mp::optim {
namespace {

// The parameter's name is its identity for random numbers, so that they do not depend on the order in which
// parameters were added.
uint64_t name_hash(const std::string& name) {
    system::Fnv64 hash;
    hash.add(name);
    return hash.value();
}

// A recipe's roundings are those of the whole step; where a group keeps fp32 nothing is rounded.
recipe::Recipe with_formats(const recipe::Recipe& recipe, const MomentFormats& formats,
                            numerics::RuleId rule) {
    if (!formats.exp_avg_sq.empty() && !has_second_moment(rule)) {
        fail(Code::invalid_argument,
             "optimizer: exp_avg_sq_format is '%.64s', but %s has no second moment; leave it NULL",
             formats.exp_avg_sq.c_str(), numerics::rule_info(rule).name);
    }
    recipe::Recipe own = recipe;
    const auto set = [&own](const char* key, const std::string& format,
                            StateFormat recipe::Recipe::*member,
                            recipe::Rounding recipe::Recipe::*rounding) {
        if (format.empty()) {
            return;
        }
        recipe::set_key(own, recipe::find_key(key), format);
        if (own.*member == DType::fp32) {
            own.*rounding = recipe::Rounding::nearest;
        }
    };
    set("optimizer.exp_avg.dtype", formats.exp_avg, &recipe::Recipe::exp_avg,
        &recipe::Recipe::exp_avg_rounding);
    set("optimizer.exp_avg_sq.dtype", formats.exp_avg_sq, &recipe::Recipe::exp_avg_sq,
        &recipe::Recipe::exp_avg_sq_rounding);
    recipe::check_recipe(own);
    return own;
}

void check_step(int64_t step) {
    if (step < 0) {
        fail(Code::invalid_argument, "optimizer: step is %lld; it must be >= 0",
             static_cast<long long>(step));
    }
}

} // namespace

Optimizer::Optimizer(std::shared_ptr<Context> context, const recipe::Recipe& recipe,
                     const OptimizerOptions& options)
    : context_(std::move(context)), recipe_(recipe), options_(options) {
    recipe::check_recipe(recipe_);
    check_options(options_, is_sharded() ? comm().size() : 0);
    if (options_.offload) {
        offload_ = std::make_unique<Offload>(context_);
    }
    memory_ = StepMemory(context_->stream(), {}, {});
}

int32_t Optimizer::add_group(const numerics::GroupHyper& hyper, const MomentFormats& formats) {
    check_hyper(hyper);
    recipe::Recipe own = with_formats(recipe_, formats, hyper.rule);
    if (options_.eager_compat &&
        (hyper.rule != numerics::RuleId::adamw || hyper.maximize || !hyper.bias_correction)) {
        fail(Code::unsupported,
             "optimizer: the eager order of roundings is AdamW's alone, without L2, maximize, or a "
             "missing bias correction");
    }
    lr_tensors_.reserve(groups_.size() + 1);
    group_recipes_.reserve(groups_.size() + 1);
    groups_.push_back(hyper);
    group_recipes_.push_back(own);
    lr_tensors_.emplace_back();
    plan_is_stale_ = true;
    return static_cast<int32_t>(groups_.size()) - 1;
}

int32_t Optimizer::add_parameter(Stream& stream, int32_t group, const NewParameter& source) {
    check_new(group, source);
    const Shape& shape = source.param->shape();
    const StateFormats formats =
        state_formats(recipe_of_group(group), weight_format(*source.param), source.param->count(),
                      groups_[static_cast<std::size_t>(group)].rule);
    const auto index = static_cast<int32_t>(parameters_.size());
    parameters_.reserve(parameters_.size() + 1);
    names_.emplace(source.name, index);
    try {
        parameters_.push_back(
            {source.name, group, source.param,
             source.grad != nullptr ? source.grad
                                    : make_state(context_, stream, formats.grad, shape),
             options_.offload ? make_like(context_, state_stream(stream), *source.param)
                              : source.param,
             std::nullopt, source.init_fp32});
        if (!is_sharded()) {
            make_states(stream, index);
        }
    } catch (...) {
        names_.erase(source.name);
        parameters_.resize(static_cast<std::size_t>(index));
        throw;
    }
    plan_is_stale_ = true;
    return index;
}

// The states of the elements that are here, with their first values.
void Optimizer::make_states(Stream& stream, int32_t index) {
    Parameter& p = parameters_[static_cast<std::size_t>(index)];
    const shard::ShardSlice own = piece(index);
    if (own.count > 0 || sharding_ == nullptr || sharding_->stage() == 0) {
        const bool is_whole = own.count == p.param->count();
        p.states.emplace(context_, state_stream(stream), formats_of(p),
                         is_whole ? p.param->shape() : Shape{{own.count}, 1});
        check_segment(segment(index), p.name.c_str(), rule_of(p));
        initialize(stream, index);
    }
    p.init_fp32 = nullptr;
}

void Optimizer::initialize(Stream& stream, int32_t index) {
    const Parameter& p = parameters_[static_cast<std::size_t>(index)];
    Stream& owner = state_stream(stream);
    if (!options_.offload) {
        const shard::ShardSlice own = piece(index);
        const TensorRef exact =
            p.init_fp32 != nullptr ? slice_of(*p.init_fp32, own.start, own.count).ref : TensorRef();
        p.states->initialize(owner, weight(index), p.init_fp32 != nullptr ? &exact : nullptr);
    } else if (p.init_fp32 == nullptr) {
        copy_numbers(stream, *p.param, *p.stepped);
        stream.sync();
        p.states->initialize(owner, weight(index), nullptr);
    } else {
        Tensor near(context_, owner, DType::fp32, p.init_fp32->shape());
        copy_tensor(stream, *p.init_fp32, near);
        stream.sync();
        const TensorRef exact = near.ref();
        p.states->initialize(owner, weight(index), &exact);
        owner.sync();
        copy_numbers(stream, *p.stepped, *p.param);
        stream.sync();
    }
    p.param->touch();
}

void Optimizer::sync_master(Stream& stream, int32_t index) {
    if (index != -1) {
        (void)parameter(index);
    }
    for (int32_t i = 0; i < parameter_count(); ++i) {
        const Parameter& p = parameters_[static_cast<std::size_t>(i)];
        if (index != -1 && index != i) {
            continue;
        }
        if (options_.offload) {
            copy_numbers(stream, *p.param, *p.stepped);
            stream.sync();
        }
        if (sharding_ != nullptr) {
            sharding_->adopt(stream, i);
        }
        if (p.states.has_value()) {
            p.states->sync_master(state_stream(stream), weight(i));
        }
    }
}

void Optimizer::set_enabled(int32_t group, bool enabled) {
    check_group(group, true);
    for (std::size_t i = 0; i < groups_.size(); ++i) {
        if (group == -1 || static_cast<std::size_t>(group) == i) {
            plan_is_stale_ = plan_is_stale_ || groups_[i].enabled != enabled;
            groups_[i].enabled = enabled;
        }
    }
}

void Optimizer::set_lr(int32_t group, double lr) {
    check_group(group, true);
    numerics::GroupHyper probe;
    probe.lr = lr;
    check_hyper(probe);
    for (std::size_t i = 0; i < groups_.size(); ++i) {
        if (group == -1 || static_cast<std::size_t>(group) == i) {
            groups_[i].lr = lr;
            groups_[i].device_lr = nullptr;
            lr_tensors_[i] = nullptr;
        }
    }
    hyper_is_stale_ = true;
}

void Optimizer::set_lr_tensor(int32_t group, const std::shared_ptr<Tensor>& lr) {
    check_group(group, true);
    const float* scalar = check_scalar(lr.get(), "lr");
    for (std::size_t i = 0; i < groups_.size(); ++i) {
        if (group == -1 || static_cast<std::size_t>(group) == i) {
            groups_[i].device_lr = scalar;
            lr_tensors_[i] = lr;
        }
    }
    hyper_is_stale_ = true;
}

void Optimizer::set_grad_scale_tensor(const std::shared_ptr<Tensor>& scale) {
    (void)check_scalar(scale.get(), "grad_scale");
    grad_scale_tensor_ = scale;
}

shard::ShardSlice Optimizer::piece(int32_t index) const {
    const Parameter& p = parameters_[static_cast<std::size_t>(index)];
    return sharding_ != nullptr ? sharding_->states_of(index)
                                : shard::ShardSlice{index, 0, 0, p.param->count()};
}

TensorSlice Optimizer::weight(int32_t index) const {
    return sharding_ != nullptr ? sharding_->weight_of(index)
                                : slice_of(*parameters_[static_cast<std::size_t>(index)].stepped);
}

UpdateSegment Optimizer::segment(int32_t index) const {
    const Parameter& p = parameters_[static_cast<std::size_t>(index)];
    const TensorSlice param = weight(index);
    const TensorSlice grad = sharding_ != nullptr
                                 ? TensorSlice{sharding_->gradient_of(index), nullptr, nullptr, {}}
                                 : slice_of(*p.grad);
    UpdateSegment s;
    s.count = param.ref.count;
    s.first = piece(index).start;
    s.uid = name_hash(p.name);
    s.group = p.group;
    s.param = {param.ref.data, param.scale_inv, param.ref.dtype, Coding::plain};
    s.grad = {grad.ref.data, grad.scale_inv, grad.ref.dtype, Coding::plain};
    p.states->fill(s);
    return s;
}

void Optimizer::make_plan(Stream& stream) {
    std::vector<UpdateSegment> segments;
    std::vector<OffloadedParameter> offloaded;
    for (int32_t i = 0; i < parameter_count(); ++i) {
        const Parameter& p = parameters_[static_cast<std::size_t>(i)];
        if (!groups_[static_cast<std::size_t>(p.group)].enabled || !p.states.has_value()) {
            continue;
        }
        if (options_.offload) {
            offloaded.push_back({p.param, p.grad, p.stepped, segment(i)});
        } else {
            segments.push_back(segment(i));
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

// Brings the device's tables up to date; everything that can fail for want of memory happens here.
void Optimizer::refresh(Stream& stream) {
    if (plan_is_stale_) {
        make_plan(stream);
        memory_ = StepMemory(stream, groups_, memory_.read(stream));
        plan_is_stale_ = false;
        hyper_is_stale_ = false;
    }
    if (hyper_is_stale_) {
        memory_.set_hyper(stream, groups_);
        hyper_is_stale_ = false;
    }
}

StepOptions Optimizer::step_options() const {
    StepOptions options;
    options.seed = options_.seed;
    options.max_grad_norm = options_.max_grad_norm;
    options.device_grad_scale = check_scalar(grad_scale_tensor_.get(), "grad_scale");
    options.check_finite = options_.check_finite;
    options.zero_grad = options_.zero_grad;
    options.eager_compat = options_.eager_compat;
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
    refresh(stream);
    if (options_.offload) {
        offload_->step(stream, memory_, scaler, step_options());
    } else {
        memory_.step(stream, plan_, scaler, step_options());
    }
    layers_.end_step(stream);
    touch_weights();
}

void Optimizer::touch_weights() {
    for (const Parameter& parameter : parameters_) {
        if (groups_[static_cast<std::size_t>(parameter.group)].enabled) {
            parameter.param->touch(); // layers have copies of it
        }
    }
}

void Optimizer::zero_grad(Stream& stream) const {
    for (const Parameter& parameter : parameters_) {
        if (parameter.grad->count() > 0 && parameter.grad->has_memory()) {
            check(stream.device().zero(stream.queue(), parameter.grad->data(),
                                       parameter.grad->bytes()));
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
    check_group(group, false);
    const std::vector<int64_t> steps = memory_.read(stream).group_steps;
    const auto i = static_cast<std::size_t>(group);
    return i < steps.size() ? steps[i] : 0; // added since the last step
}

void Optimizer::set_group_step(Stream& stream, int32_t group, int64_t step) {
    check_group(group, false);
    check_step(step);
    refresh(stream);
    StepCounts counts = memory_.read(stream);
    counts.group_steps[static_cast<std::size_t>(group)] = step;
    memory_.write(stream, counts);
}

const Optimizer::Parameter& Optimizer::parameter(int32_t index) const {
    if (index < 0 || index >= parameter_count()) {
        fail(Code::invalid_argument, "optimizer: parameter %d does not exist; there are %d", index,
             parameter_count());
    }
    return parameters_[static_cast<std::size_t>(index)];
}

void Optimizer::read_state(Stream& stream, int32_t index, const std::string& name,
                           const Tensor& values) const {
    const Parameter& p = parameter(index);
    check_values(index, values);
    read_values(state_stream(stream), *p.states, weight(index), name, values.ref(), p.name);
}

void Optimizer::write_state(Stream& stream, int32_t index, const std::string& name,
                            const Tensor& values) {
    const Parameter& p = parameter(index);
    check_values(index, values);
    write_values(state_stream(stream), *p.states, weight(index), name, values.ref(), p.name);
    if (options_.offload) {
        copy_numbers(stream, *p.stepped, *p.param);
        stream.sync();
    }
    p.param->touch();
}

std::shared_ptr<Tensor> Optimizer::state(int32_t index, const std::string& name) const {
    const Parameter& p = parameter(index);
    std::vector<NamedTensor> states = {{"param", p.param},
                                       {"param_scale_inv", scale_of(p.param)},
                                       {"grad", p.grad},
                                       {"grad_scale_inv", scale_of(p.grad)}};
    if (p.states.has_value()) {
        for (NamedTensor& entry : p.states->list()) {
            states.push_back(std::move(entry));
        }
    }
    std::string present;
    for (const auto& [state_name, tensor] : states) {
        if (tensor == nullptr) {
            continue;
        }
        if (name == state_name) {
            return tensor;
        }
        present += (present.empty() ? "" : ", ") + std::string(state_name);
    }
    fail(Code::unknown_name, "optimizer: parameter '%s' has no state '%.64s'; it has: %s",
         p.name.c_str(), name.c_str(), present.c_str());
}

MemoryReport Optimizer::memory() const noexcept {
    MemoryReport report;
    for (int32_t i = 0; i < parameter_count(); ++i) {
        const Parameter& p = parameters_[static_cast<std::size_t>(i)];
        report.parameter_count += p.param->count();
        report.weight += bytes_of(p.param);
        report.grad += bytes_of(p.grad);
        if (sharding_ != nullptr) {
            report.weight += sharding_->weight_bytes(i);
        }
        if (p.states.has_value()) {
            p.states->add_bytes(report);
        }
    }
    report.reduced_grad = sharding_ != nullptr ? sharding_->gradient_bytes() : 0;
    return report;
}

} // namespace mp::optim
