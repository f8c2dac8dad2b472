// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.hpp"

#include "optim/state_values.hpp"

namespace mp {
namespace {

// FNV-1a, 64 bits: the parameter's name is its identity for random numbers, so that they do not depend on
// the order in which parameters were added.
uint64_t name_hash(const std::string& name) {
    uint64_t hash = 0xcbf29ce484222325ULL;
    for (const char c : name) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    }
    return hash;
}

void check_step(int64_t step) {
    if (step < 0) {
        fail(Code::invalid_argument, "optimizer: step is %lld; it must be >= 0",
             static_cast<long long>(step));
    }
}

} // namespace

Optimizer::Optimizer(std::shared_ptr<Context> context, const Recipe& recipe,
                     const OptimizerOptions& options)
    : context_(std::move(context)), recipe_(recipe), options_(options) {
    check_recipe(recipe_);
    if (!(options_.max_grad_norm >= 0.0 && options_.max_grad_norm < 1e30)) {
        fail(Code::invalid_argument,
             "optimizer: max_grad_norm is %g; it must be 0 (no clipping) or a positive number",
             options_.max_grad_norm);
    }
    if (options_.offload) {
        if (options_.eager_compat) {
            fail(Code::unsupported, "optimizer: the eager order of roundings is not for "
                                    "MP_OPTIMIZER_OFFLOAD");
        }
        offload_ = std::make_unique<Offload>(context_);
    }
    memory_ = StepMemory(context_->stream(), {}, {});
}

int32_t Optimizer::add_group(const numerics::AdamwHyper& hyper) {
    check_hyper(hyper);
    if (options_.eager_compat && (hyper.l2 || hyper.maximize || !hyper.bias_correction)) {
        fail(Code::unsupported,
             "optimizer: the eager order of roundings is AdamW's alone, without L2, maximize, or a "
             "missing bias correction");
    }
    lr_tensors_.reserve(groups_.size() + 1);
    groups_.push_back(hyper);
    lr_tensors_.emplace_back();
    plan_is_stale_ = true;
    return static_cast<int32_t>(groups_.size()) - 1;
}

int32_t Optimizer::add_parameter(Stream& stream, int32_t group, const NewParameter& source) {
    check_new(group, source);
    const Shape& shape = source.param->shape();
    const StateFormats formats =
        state_formats(recipe_, format_of(*source.param), source.param->count());
    Stream& owner = state_stream(stream);
    Parameter parameter = {
        source.name,
        group,
        source.param,
        source.grad != nullptr ? source.grad : make_state(context_, stream, formats.grad, shape),
        options_.offload ? make_like(context_, owner, *source.param) : source.param,
        ParamStates(context_, owner, formats, shape)};
    check_segment(segment(parameter), source.name.c_str());

    const auto index = static_cast<int32_t>(parameters_.size());
    parameters_.reserve(parameters_.size() + 1);
    names_.emplace(source.name, index);
    try {
        initialize(stream, parameter, source.init_fp32.get());
    } catch (...) {
        names_.erase(source.name);
        throw;
    }
    parameters_.push_back(std::move(parameter));
    plan_is_stale_ = true;
    return index;
}

void Optimizer::initialize(Stream& stream, const Parameter& p, const Tensor* init_fp32) const {
    Stream& owner = state_stream(stream);
    if (!options_.offload) {
        const TensorRef exact = init_fp32 != nullptr ? init_fp32->ref() : TensorRef();
        p.states.initialize(owner, piece_of(*p.param), init_fp32 != nullptr ? &exact : nullptr);
    } else if (init_fp32 == nullptr) {
        copy_numbers(stream, *p.param, *p.stepped);
        stream.sync();
        p.states.initialize(owner, piece_of(*p.stepped), nullptr);
    } else {
        Tensor near(context_, owner, DType::fp32, init_fp32->shape());
        copy_tensor(stream, *init_fp32, near);
        stream.sync();
        const TensorRef exact = near.ref();
        p.states.initialize(owner, piece_of(*p.stepped), &exact);
        owner.sync();
        copy_numbers(stream, *p.stepped, *p.param);
        stream.sync();
    }
    p.param->touch();
}

void Optimizer::sync_master(Stream& stream, int32_t index) {
    if (index < -1 || index >= parameter_count()) {
        fail(Code::invalid_argument, "optimizer: parameter %d does not exist; there are %d", index,
             parameter_count());
    }
    for (int32_t i = 0; i < parameter_count(); ++i) {
        if (index == -1 || index == i) {
            const Parameter& p = parameters_[static_cast<std::size_t>(i)];
            if (options_.offload) {
                copy_numbers(stream, *p.param, *p.stepped);
                stream.sync();
            }
            p.states.sync_master(state_stream(stream), piece_of(*p.stepped));
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
    numerics::AdamwHyper probe;
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

AdamwSegment Optimizer::segment(const Parameter& p) const noexcept {
    AdamwSegment s;
    s.count = p.param->count();
    s.uid = name_hash(p.name);
    s.group = p.group;
    const auto assign = [](const Tensor& tensor, void*& data, DType& dtype) {
        data = tensor.data();
        dtype = tensor.dtype();
        return piece_of(tensor).scale_inv;
    };
    s.param_scale_inv = assign(*p.stepped, s.param, s.param_dtype);
    s.grad_scale_inv = assign(*p.grad, s.grad, s.grad_dtype);
    p.states.fill(s);
    return s;
}

void Optimizer::make_plan(Stream& stream) {
    std::vector<AdamwSegment> segments;
    std::vector<OffloadedParameter> offloaded;
    for (const Parameter& p : parameters_) {
        if (!groups_[static_cast<std::size_t>(p.group)].enabled) {
            continue;
        }
        if (options_.offload) {
            offloaded.push_back({p.param, p.grad, p.stepped, segment(p)});
        } else {
            segments.push_back(segment(p));
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

void Optimizer::step(Stream& stream, LossScaler* scaler) {
    refresh(stream);
    StepOptions options;
    options.seed = options_.seed;
    options.max_grad_norm = options_.max_grad_norm;
    options.device_grad_scale = check_scalar(grad_scale_tensor_.get(), "grad_scale");
    options.check_finite = options_.check_finite;
    options.zero_grad = options_.zero_grad;
    options.eager_compat = options_.eager_compat;
    options.stochastic_param = recipe_.weight_rounding == Rounding::stochastic;
    options.stochastic_exp_avg = recipe_.exp_avg_rounding == Rounding::stochastic;
    options.stochastic_exp_avg_sq = recipe_.exp_avg_sq_rounding == Rounding::stochastic;
    if (options_.offload) {
        offload_->step(stream, memory_, scaler, options);
    } else {
        memory_.step(stream, plan_, scaler, options);
    }
    for (const Parameter& parameter : parameters_) {
        if (groups_[static_cast<std::size_t>(parameter.group)].enabled) {
            parameter.param->touch(); // layers have copies of it
        }
    }
}

void Optimizer::zero_grad(Stream& stream) const {
    for (const Parameter& parameter : parameters_) {
        if (parameter.grad->count() > 0) {
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
    check_values(p, values);
    read_values(state_stream(stream), p.states, piece_of(*p.stepped), name, values.ref(), p.name);
}

void Optimizer::write_state(Stream& stream, int32_t index, const std::string& name,
                            const Tensor& values) {
    const Parameter& p = parameter(index);
    check_values(p, values);
    write_values(state_stream(stream), p.states, piece_of(*p.stepped), name, values.ref(), p.name);
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
    for (NamedTensor& entry : p.states.list()) {
        states.push_back(std::move(entry));
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
    for (const Parameter& p : parameters_) {
        report.parameter_count += p.param->count();
        report.weight += bytes_of(p.param);
        report.grad += bytes_of(p.grad);
        p.states.add_bytes(report);
    }
    return report;
}

} // namespace mp
