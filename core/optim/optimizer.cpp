// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.hpp"

#include <array>

#include "numerics/codec.hpp"
#include "numerics/remainder.hpp"
#include "quant/quantize.hpp"

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

int64_t bytes_of(const std::shared_ptr<Tensor>& tensor) {
    if (tensor == nullptr) {
        return 0;
    }
    const std::size_t scales =
        tensor->scales() == nullptr ? 0 : tensor->scales()->scale_inv->bytes();
    return static_cast<int64_t>(tensor->bytes() + scales);
}

// The scale of a tensor that has one for all its elements.
float* scale_inv_of(const Tensor& tensor) {
    return tensor.scales() == nullptr ? nullptr
                                      : static_cast<float*>(tensor.scales()->scale_inv->data());
}

StateFormat format_of(const Tensor& tensor) {
    return {tensor.dtype(), tensor.scales() == nullptr ? Coding::plain : Coding::scaled};
}

MatrixForm form_of(StateFormat format) {
    return {format.dtype, kTensorScale,
            numerics::scale_policy(numerics::ScaleRule::msamp, format.dtype)};
}

// What is kept in high precision has gradients and moments without scales.
StateFormat unscaled(StateFormat format) {
    return format.is_scaled() ? StateFormat(DType::fp32) : format;
}

// destination = source, rounded or quantized, where either may have a scale. At creation only: a scaled
// source goes through fp32 memory.
void convert(Stream& stream, const std::shared_ptr<Context>& context, const Tensor& source,
             Tensor& destination) {
    if (source.scales() != nullptr) {
        const Tensor wide(context, stream, DType::fp32, source.shape());
        dequantize_tensor(stream, source, wide);
        convert(stream, context, wide, destination);
        stream.sync(); // before the memory goes
    } else if (destination.scales() != nullptr) {
        quantize_tensor(stream, source, destination, nullptr);
    } else {
        cast_tensor(stream, source.ref(), destination.ref());
    }
}

// compensation = round(init - param): what the parameter's rounding lost. At creation only, so on the host.
void store_lost_part(Stream& stream, const Tensor& init, const Tensor& param,
                     const Tensor& compensation) {
    std::vector<float> exact(static_cast<std::size_t>(init.count()));
    std::vector<unsigned char> rounded(param.bytes());
    std::vector<unsigned char> lost(compensation.bytes());
    stream.copy(exact.data(), init.data(), init.bytes(), CopyKind::device_to_host);
    stream.copy(rounded.data(), param.data(), param.bytes(), CopyKind::device_to_host);
    stream.sync();
    for (int64_t i = 0; i < init.count(); ++i) {
        const float kept = numerics::load_as_float(param.dtype(), rounded.data(), i);
        numerics::store_from_float(compensation.dtype(), lost.data(), i,
                                   exact[static_cast<std::size_t>(i)] - kept, false);
    }
    stream.copy(compensation.data(), lost.data(), lost.size(), CopyKind::host_to_device);
    stream.sync();
}

// param and remainder of an exact fp32 value; without one the parameter is exact, and its remainder zero. At
// creation only, so on the host.
void store_remainder(Stream& stream, const Tensor* init, const Tensor& param,
                     const Tensor& remainder) {
    if (init == nullptr) {
        return; // zero already
    }
    const auto count = static_cast<std::size_t>(init->count());
    std::vector<float> exact(count);
    std::vector<uint16_t> upper(count);
    std::vector<int16_t> lower(count);
    stream.copy(exact.data(), init->data(), init->bytes(), CopyKind::device_to_host);
    stream.sync();
    for (std::size_t i = 0; i < count; ++i) {
        const numerics::SplitMaster split = numerics::split_master(exact[i]);
        upper[i] = split.param;
        lower[i] = split.remainder;
    }
    stream.copy(param.data(), upper.data(), param.bytes(), CopyKind::host_to_device);
    stream.copy(remainder.data(), lower.data(), remainder.bytes(), CopyKind::host_to_device);
    stream.sync();
}

} // namespace

MemoryReport planned_memory(const Recipe& recipe, std::span<const int64_t> counts) {
    MemoryReport report;
    for (const int64_t count : counts) {
        report.parameter_count += count;
        report.weight += format_bytes(recipe.weight, count);
        report.master += format_bytes(recipe.master, count);
        report.grad += format_bytes(recipe.grad, count);
        report.exp_avg += format_bytes(moment_format(recipe.exp_avg, count), count);
        report.exp_avg_sq += format_bytes(moment_format(recipe.exp_avg_sq, count), count);
        report.compensation += format_bytes(recipe.compensation, count);
    }
    return report;
}

Optimizer::Optimizer(std::shared_ptr<Context> context, const Recipe& recipe,
                     const OptimizerOptions& options)
    : context_(std::move(context)), recipe_(recipe), options_(options) {
    check_recipe(recipe_);
    if (!(options_.max_grad_norm >= 0.0 && options_.max_grad_norm < 1e30)) {
        fail(Code::invalid_argument,
             "optimizer: max_grad_norm is %g; it must be 0 (no clipping) or a positive number",
             options_.max_grad_norm);
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
    enabled_.reserve(groups_.size() + 1);
    groups_.push_back(hyper);
    enabled_.push_back(true);
    plan_is_stale_ = true;
    return static_cast<int32_t>(groups_.size()) - 1;
}

void Optimizer::check_new(int32_t group, const NewParameter& p) const {
    if (group < 0 || group >= static_cast<int32_t>(groups_.size())) {
        fail(Code::invalid_argument,
             "optimizer: group is %d but there are %zu group(s); add one with "
             "mp_optimizer_add_group",
             group, groups_.size());
    }
    if (p.name.empty() || p.name.size() > 255) {
        fail(Code::invalid_argument,
             "optimizer: a parameter's name has %zu bytes; it must have 1 to 255", p.name.size());
    }
    const char* name = p.name.c_str();
    if (names_.contains(p.name)) {
        fail(Code::invalid_argument, "optimizer: there already is a parameter '%s'", name);
    }
    check_format(p);
    for (const Tensor* tensor : {p.param.get(), p.grad.get(), p.init_fp32.get()}) {
        if (tensor == nullptr) {
            continue;
        }
        if (tensor->shape() != p.param->shape()) {
            fail(Code::invalid_shape, "optimizer: '%s' is %s but its grad or init_fp32 is %s", name,
                 p.param->shape().text().c_str(), tensor->shape().text().c_str());
        }
        if (&tensor->device() != &context_->stream().device()) {
            fail(Code::invalid_argument,
                 "optimizer: '%s' has a tensor that is not on the context's device", name);
        }
    }
    if (p.grad != nullptr && p.grad->overlaps(*p.param)) {
        fail(Code::invalid_argument, "optimizer: grad of '%s' overlaps the parameter in memory",
             name);
    }
    if (p.init_fp32 != nullptr && p.init_fp32->dtype() != DType::fp32) {
        fail(Code::invalid_dtype, "optimizer: init_fp32 of '%s' is %s; it must be fp32", name,
             dtype_name(p.init_fp32->dtype()));
    }
}

void Optimizer::check_format(const NewParameter& p) const {
    const char* name = p.name.c_str();
    for (const Tensor* tensor : {p.param.get(), p.grad.get()}) {
        if (tensor != nullptr && tensor->scales() != nullptr &&
            tensor->form().grid != kTensorScale) {
            fail(Code::invalid_dtype,
                 "optimizer: '%s' has a tensor of %s; weights and gradients have one scale for the "
                 "tensor",
                 name, form_text(tensor->form()).c_str());
        }
    }
    const StateFormat format = format_of(*p.param);
    if (format != DType::fp32 && format != recipe_.weight) {
        fail(Code::invalid_dtype,
             "optimizer: parameter '%s' is %s; the recipe wants %s, or fp32 for one kept in high "
             "precision",
             name, format_name(format), format_name(recipe_.weight));
    }
}

std::shared_ptr<Tensor> Optimizer::make(Stream& stream, StateFormat format,
                                        const Shape& shape) const {
    if (!format.exists()) {
        return nullptr;
    }
    if (format.is_scaled()) {
        return std::make_shared<Tensor>(context_, stream, form_of(format), shape);
    }
    const Shape bytes = {{code_bytes(format.coding, format.dtype, shape.count())}, 1};
    return std::make_shared<Tensor>(context_, stream, format.dtype,
                                    format.coding == Coding::dynamic4 ? bytes : shape);
}

// Zero: so codes of zero are numbers of zero, also in a map whose code 0 is something else.
std::shared_ptr<Tensor> Optimizer::make_block_scales(Stream& stream, StateFormat format,
                                                     int64_t count) const {
    return has_blocks(format.coding)
               ? std::make_shared<Tensor>(context_, stream, DType::fp32,
                                          Shape{{scale_count(format, count)}, 1})
               : nullptr;
}

int32_t Optimizer::add_parameter(Stream& stream, int32_t group, const NewParameter& source) {
    check_new(group, source);
    const Shape& shape = source.param->shape();
    const bool narrow = source.param->dtype() != DType::fp32; // an fp32 parameter is its own master
    const auto state = [&](StateFormat format) {
        return make(stream, narrow ? format : unscaled(format), shape);
    };
    Parameter parameter;
    parameter.name = source.name;
    parameter.group = group;
    parameter.param = source.param;
    parameter.grad = source.grad != nullptr ? source.grad : state(recipe_.grad);
    const int64_t count = source.param->count();
    parameter.exp_avg_format = moment_format(recipe_.exp_avg, count);
    parameter.exp_avg_sq_format = moment_format(recipe_.exp_avg_sq, count);
    parameter.exp_avg = state(parameter.exp_avg_format);
    parameter.exp_avg_sq = state(parameter.exp_avg_sq_format);
    parameter.exp_avg_scales = make_block_scales(stream, parameter.exp_avg_format, count);
    parameter.exp_avg_sq_scales = make_block_scales(stream, parameter.exp_avg_sq_format, count);
    parameter.compensation = narrow ? make(stream, recipe_.compensation, shape) : nullptr;
    parameter.master = narrow ? make(stream, recipe_.master, shape) : nullptr;
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

// A parameter beside a master weight is the master weight as it is stored, rounded; from the first moment on.
void Optimizer::initialize(Stream& stream, const Parameter& p, const Tensor* init_fp32) const {
    if (p.master != nullptr && recipe_.master.coding == Coding::remainder) {
        store_remainder(stream, init_fp32, *p.param, *p.master);
    } else if (p.master != nullptr) {
        convert(stream, context_, init_fp32 != nullptr ? *init_fp32 : *p.param, *p.master);
        if (init_fp32 != nullptr) {
            convert(stream, context_, *p.master, *p.param);
        }
    } else if (init_fp32 != nullptr && init_fp32 != p.param.get()) {
        convert(stream, context_, *init_fp32, *p.param);
    }
    if (p.compensation != nullptr && init_fp32 != nullptr) {
        store_lost_part(stream, *init_fp32, *p.param, *p.compensation);
    }
}

void Optimizer::sync_master(Stream& stream, int32_t index) {
    if (index < -1 || index >= parameter_count()) {
        fail(Code::invalid_argument, "optimizer: parameter %d does not exist; there are %d", index,
             parameter_count());
    }
    for (int32_t i = 0; i < parameter_count(); ++i) {
        const Parameter& p = parameters_[static_cast<std::size_t>(i)];
        if (index != -1 && index != i) {
            continue;
        }
        const bool has_remainder = recipe_.master.coding == Coding::remainder;
        if (p.master != nullptr && !has_remainder) {
            convert(stream, context_, *p.param, *p.master);
        }
        for (const Tensor* lost :
             {has_remainder ? p.master.get() : nullptr, p.compensation.get()}) {
            if (lost != nullptr && lost->count() > 0) {
                check(stream.device().zero(stream.queue(), lost->data(), lost->bytes()));
            }
        }
    }
}

void Optimizer::set_enabled(int32_t group, bool enabled) {
    if (group < -1 || group >= static_cast<int32_t>(groups_.size())) {
        fail(Code::invalid_argument, "optimizer: group is %d; it must be -1 (all) or below %zu",
             group, groups_.size());
    }
    for (std::size_t i = 0; i < groups_.size(); ++i) {
        if (group == -1 || static_cast<std::size_t>(group) == i) {
            plan_is_stale_ = plan_is_stale_ || enabled_[i] != enabled;
            enabled_[i] = enabled;
        }
    }
}

void Optimizer::set_lr(int32_t group, double lr) {
    if (group < -1 || group >= static_cast<int32_t>(groups_.size())) {
        fail(Code::invalid_argument, "optimizer: group is %d; it must be -1 (all) or below %zu",
             group, groups_.size());
    }
    numerics::AdamwHyper probe;
    probe.lr = lr;
    check_hyper(probe);
    for (std::size_t i = 0; i < groups_.size(); ++i) {
        if (group == -1 || static_cast<std::size_t>(group) == i) {
            groups_[i].lr = lr;
        }
    }
    hyper_is_stale_ = true;
}

AdamwSegment Optimizer::segment(const Parameter& p) const noexcept {
    AdamwSegment s;
    s.count = p.param->count();
    s.uid = name_hash(p.name);
    s.group = p.group;
    const auto assign = [](const std::shared_ptr<Tensor>& tensor, void*& data, DType& dtype) {
        if (tensor == nullptr) {
            return static_cast<float*>(nullptr);
        }
        data = tensor->data();
        dtype = tensor->dtype();
        return scale_inv_of(*tensor);
    };
    s.param_scale_inv = assign(p.param, s.param, s.param_dtype);
    s.grad_scale_inv = assign(p.grad, s.grad, s.grad_dtype);
    s.exp_avg_scale_inv = assign(p.exp_avg, s.exp_avg, s.exp_avg_dtype);
    s.exp_avg_sq_scale_inv = assign(p.exp_avg_sq, s.exp_avg_sq, s.exp_avg_sq_dtype);
    (void)assign(p.compensation, s.compensation, s.compensation_dtype);
    s.master_scale_inv = assign(p.master, s.master, s.master_dtype);
    s.master_coding = p.master != nullptr && recipe_.master.coding == Coding::remainder
                          ? Coding::remainder
                          : Coding::plain;
    const auto assign_blocks = [](StateFormat format, const std::shared_ptr<Tensor>& scales,
                                  Coding& coding, float*& scale_inv) {
        if (scales != nullptr) {
            coding = format.coding;
            scale_inv = static_cast<float*>(scales->data());
        }
    };
    assign_blocks(p.exp_avg_format, p.exp_avg_scales, s.exp_avg_coding, s.exp_avg_scale_inv);
    assign_blocks(p.exp_avg_sq_format, p.exp_avg_sq_scales, s.exp_avg_sq_coding,
                  s.exp_avg_sq_scale_inv);
    return s;
}

// Brings the device's tables up to date; everything that can fail for want of memory happens here.
void Optimizer::refresh(Stream& stream) {
    if (plan_is_stale_) {
        std::vector<AdamwSegment> segments;
        segments.reserve(parameters_.size());
        for (const Parameter& parameter : parameters_) {
            if (enabled_[static_cast<std::size_t>(parameter.group)]) {
                segments.push_back(segment(parameter));
            }
        }
        SegmentPlan plan(stream, std::move(segments));
        memory_ = StepMemory(stream, groups_,
                             memory_.read(stream)); // waits, so the old plan is no longer in use
        plan_ = std::move(plan);
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
    options.check_finite = options_.check_finite;
    options.zero_grad = options_.zero_grad;
    options.eager_compat = options_.eager_compat;
    options.stochastic_param = recipe_.weight_rounding == Rounding::stochastic;
    options.stochastic_exp_avg = recipe_.exp_avg_rounding == Rounding::stochastic;
    options.stochastic_exp_avg_sq = recipe_.exp_avg_sq_rounding == Rounding::stochastic;
    memory_.step(stream, plan_, scaler, options);
    for (const Parameter& parameter : parameters_) {
        if (enabled_[static_cast<std::size_t>(parameter.group)]) {
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
    return memory_.read(stream);
}

void Optimizer::set_step(Stream& stream, int64_t step) {
    if (step < 0) {
        fail(Code::invalid_argument, "optimizer: step is %lld; it must be >= 0",
             static_cast<long long>(step));
    }
    numerics::OptimizerState state = memory_.read(stream);
    state.step = step;
    memory_.write(stream, state);
}

std::shared_ptr<Tensor> Optimizer::state(int32_t index, const std::string& name) const {
    if (index < 0 || index >= parameter_count()) {
        fail(Code::invalid_argument, "optimizer: parameter %d does not exist; there are %d", index,
             parameter_count());
    }
    const Parameter& p = parameters_[static_cast<std::size_t>(index)];
    const auto scale_of = [](const std::shared_ptr<Tensor>& tensor) {
        return tensor != nullptr && tensor->scales() != nullptr ? tensor->scales()->scale_inv
                                                                : nullptr;
    };
    const auto either = [](const std::shared_ptr<Tensor>& a, const std::shared_ptr<Tensor>& b) {
        return a != nullptr ? a : b;
    };
    const std::array<std::pair<const char*, std::shared_ptr<Tensor>>, 11> states = {{
        {"param", p.param},
        {"param_scale_inv", scale_of(p.param)},
        {"grad", p.grad},
        {"grad_scale_inv", scale_of(p.grad)},
        {"exp_avg", p.exp_avg},
        {"exp_avg_scale_inv", either(p.exp_avg_scales, scale_of(p.exp_avg))},
        {"exp_avg_sq", p.exp_avg_sq},
        {"exp_avg_sq_scale_inv", either(p.exp_avg_sq_scales, scale_of(p.exp_avg_sq))},
        {"compensation", p.compensation},
        {"master", p.master},
        {"master_scale_inv", scale_of(p.master)},
    }};
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
        report.master += bytes_of(p.master);
        report.grad += bytes_of(p.grad);
        report.exp_avg += bytes_of(p.exp_avg) + bytes_of(p.exp_avg_scales);
        report.exp_avg_sq += bytes_of(p.exp_avg_sq) + bytes_of(p.exp_avg_sq_scales);
        report.compensation += bytes_of(p.compensation);
    }
    return report;
}

} // namespace mp
