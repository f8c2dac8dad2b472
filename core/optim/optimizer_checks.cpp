// SPDX-License-Identifier: Apache-2.0
// What the optimizer refuses, before anything changes.
#include "optim/optimizer.hpp"

namespace mp::optim {

void Optimizer::check_options(const OptimizerOptions& options, int32_t ranks) {
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

const float* Optimizer::check_scalar(const Tensor* tensor, const char* name) const {
    if (tensor == nullptr) {
        return nullptr;
    }
    if (tensor->count() != 1) {
        fail(Code::invalid_shape, "optimizer: %s is %s; it must have one element", name,
             tensor->shape().text().c_str());
    }
    if (tensor->dtype() != DType::fp32) {
        fail(Code::invalid_dtype, "optimizer: %s is %s; it must be fp32", name,
             dtype_name(tensor->dtype()));
    }
    if (&tensor->device() != &context_->stream().device()) {
        fail(Code::invalid_argument, "optimizer: %s is not on the context's device", name);
    }
    return static_cast<const float*>(tensor->data());
}

std::string Optimizer::warning_of_group(int32_t group) const {
    const recipe::Recipe& recipe = recipe_of_group(group);
    const numerics::GroupHyper& hyper = groups_[static_cast<std::size_t>(group)];
    if (!has_second_moment(hyper.rule) || recipe.exp_avg_sq != DType::bf16 ||
        recipe.exp_avg_sq_rounding != recipe::Rounding::nearest ||
        hyper.beta2 <= recipe::kLargestBeta2ForNearestBf16) {
        return {};
    }
    return "optimizer: at beta2 " + std::to_string(hyper.beta2) +
           " a bf16 second moment rounded to nearest can grow but never decrease; use beta2 <= "
           "0.996, or set optimizer.exp_avg_sq.rounding to stochastic";
}

void Optimizer::check_group(int32_t group, bool may_be_all) const {
    if (group < (may_be_all ? -1 : 0) || group >= static_cast<int32_t>(groups_.size())) {
        fail(Code::invalid_argument,
             "optimizer: group is %d but there are %zu group(s)%s; add one with "
             "mp_optimizer_add_group",
             group, groups_.size(), may_be_all ? ", and -1 for all" : "");
    }
}

void Optimizer::check_new(int32_t group, const NewParameter& p) const {
    check_group(group, false);
    if (sharding_ != nullptr) {
        fail(Code::bad_state,
             "optimizer: its parameters are shared out among the ranks; '%s' comes too late",
             p.name.c_str());
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
    if (p.init_fp32 != nullptr && p.init_fp32->dtype() != DType::fp32) {
        fail(Code::invalid_dtype, "optimizer: init_fp32 of '%s' is %s; it must be fp32", name,
             dtype_name(p.init_fp32->dtype()));
    }
    check_apart(p);
}

// A step writes all parameters and may zero all gradients, in any order.
void Optimizer::check_apart(const NewParameter& p) const {
    if (p.grad != nullptr && p.grad->overlaps(*p.param)) {
        fail(Code::invalid_argument, "optimizer: grad of '%s' overlaps the parameter in memory",
             p.name.c_str());
    }
    for (const Parameter& other : parameters_) {
        for (const Tensor* ours : {p.param.get(), p.grad.get()}) {
            for (const Tensor* theirs : {other.param.get(), other.grad.get()}) {
                if (ours != nullptr && ours->overlaps(*theirs)) {
                    fail(Code::invalid_argument,
                         "optimizer: the %s of '%s' overlaps the %s of '%s' in memory; each "
                         "parameter and gradient needs memory of its own (a tied weight is added "
                         "once)",
                         ours == p.param.get() ? "weight" : "gradient", p.name.c_str(),
                         theirs == other.param.get() ? "weight" : "gradient", other.name.c_str());
                }
            }
        }
    }
}

bool Optimizer::is_gathered_codes(const Tensor& param) const noexcept {
    return is_sharded() && options_.sharding.stage > 0 && recipe_.fp8.gather &&
           param.scales() != nullptr && param.form().grid == kTensorScale &&
           format_of(param) != recipe_.weight;
}

StateFormat Optimizer::weight_format(const Tensor& param) const noexcept {
    return is_gathered_codes(param) ? recipe_.weight : format_of(param);
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
    const StateFormat format = weight_format(*p.param);
    if (format != DType::fp32 && format != recipe_.weight) {
        fail(Code::invalid_dtype,
             "optimizer: parameter '%s' is %s; the recipe wants %s, or fp32 for one kept in high "
             "precision",
             name, format_name(format), format_name(recipe_.weight));
    }
}

void Optimizer::check_values(int32_t index, const Tensor& values) const {
    const Parameter& p = parameter(index);
    if (!p.states.has_value()) {
        fail(Code::bad_state, "optimizer: the states of '%s' are on other ranks", p.name.c_str());
    }
    if (values.count() != piece(index).count) {
        fail(Code::invalid_shape,
             "optimizer: '%s' is %s, of which %lld elements have their states here, but the tensor "
             "of "
             "values is %s",
             p.name.c_str(), p.param->shape().text().c_str(),
             static_cast<long long>(piece(index).count), values.shape().text().c_str());
    }
    const DType dtype = values.dtype();
    if (values.scales() != nullptr ||
        (dtype != DType::fp32 && dtype != DType::fp16 && dtype != DType::bf16)) {
        fail(Code::invalid_dtype,
             "optimizer: the values for '%s' are %s; they must be fp32, fp16 or bf16 (codes are "
             "copied by mp_optimizer_state)",
             p.name.c_str(), form_text(values.form()).c_str());
    }
    if (&values.device() != &p.stepped->device()) {
        fail(Code::invalid_argument, "optimizer: the values for '%s' are not on the %s",
             p.name.c_str(), options_.offload ? "host, where its states are" : "context's device");
    }
}

} // namespace mp::optim
