// SPDX-License-Identifier: Apache-2.0
// What is refused, before anything changes.
#include "optim/parameters.hpp"

#include "system/name.hpp"

namespace mp::optim {

void Parameters::check_new(const recipe::Recipe& recipe, const NewParameter& p) const {
    if (sharding_ != nullptr) {
        fail(Code::bad_state,
             "optimizer: its parameters are shared out among the ranks; '%s' comes too late",
             p.name.c_str());
    }
    system::check_name("optimizer: a parameter's name", p.name);
    const char* name = p.name.c_str();
    if (names_.contains(p.name)) {
        fail(Code::invalid_argument, "optimizer: there already is a parameter '%s'", name);
    }
    check_format(recipe, p);
    for (const Tensor* tensor : {p.param.get(), p.grad.get(), p.init_fp32.get()}) {
        if (tensor == nullptr) {
            continue;
        }
        if (tensor->shape() != p.param->shape()) {
            fail(Code::invalid_shape, "optimizer: '%s' is %s but its %s is %s; they must be equal",
                 name, p.param->shape().text().c_str(),
                 tensor == p.grad.get() ? "grad" : "init_fp32", tensor->shape().text().c_str());
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
    if (p.is_frozen && (p.grad != nullptr || p.init_fp32 != nullptr || p.counts_elsewhere)) {
        fail(Code::invalid_argument,
             "optimizer: '%s' is frozen, so it takes neither grad nor init_fp32 nor "
             "MP_PARAM_NORM_ELSEWHERE",
             name);
    }
    check_apart(p);
}

std::string Parameters::holder_of(const Tensor& tensor) const {
    if (const MemoryOwner* owner = memory_.find(tensor.data(), tensor.bytes())) {
        return (owner->is_gradient ? "gradient of '" : "weight of '") + (*this)[owner->index].name +
               "'";
    }
    const int32_t* state_of = state_memory_.find(tensor.data(), tensor.bytes());
    return state_of != nullptr ? "states of '" + (*this)[*state_of].name + "'" : std::string();
}

// A step writes all parameters and states and may zero all gradients, in any order.
void Parameters::check_apart(const NewParameter& p) const {
    if (p.grad != nullptr && p.grad->overlaps(*p.param)) {
        fail(Code::invalid_argument, "optimizer: grad of '%s' overlaps the parameter in memory",
             p.name.c_str());
    }
    for (const Tensor* ours : {p.param.get(), p.grad.get()}) {
        const std::string theirs = ours != nullptr ? holder_of(*ours) : std::string();
        if (!theirs.empty()) {
            fail(Code::invalid_argument,
                 "optimizer: the %s of '%s' overlaps the %s in memory; each parameter and gradient "
                 "needs memory of its own (a tied weight is added once)",
                 ours == p.param.get() ? "weight" : "gradient", p.name.c_str(), theirs.c_str());
        }
    }
}

void Parameters::check_number(const Tensor* number, const char* name) const {
    const std::string theirs = number != nullptr ? holder_of(*number) : std::string();
    if (!theirs.empty()) {
        fail(Code::invalid_argument,
             "optimizer: %s overlaps the %s in memory; it needs memory of its own", name,
             theirs.c_str());
    }
}

void Parameters::check_format(const recipe::Recipe& recipe, const NewParameter& p) const {
    const char* name = p.name.c_str();
    for (const Tensor* tensor : {p.param.get(), p.grad.get()}) {
        if (tensor != nullptr && tensor->scales() != nullptr &&
            tensor->format().grid != kTensorScale) {
            fail(Code::invalid_dtype,
                 "optimizer: '%s' has a tensor of %s; weights and gradients have one scale for the "
                 "tensor",
                 name, format_text(tensor->format()).c_str());
        }
    }
    const FormatId memory = format_of(*p.param);
    if (p.is_frozen && (format_roles(memory) & kForParam) == 0) {
        fail(Code::invalid_dtype,
             "optimizer: frozen parameter '%s' is %s; it must be fp32, fp16, bf16, or codes with "
             "one "
             "scale",
             name, format_text(p.param->format()).c_str());
    }
    if (p.is_frozen) {
        return;
    }
    const FormatId format = kept_format(recipe, memory, options_.layout);
    if (format != FormatId::fp32 && format != recipe.weight) {
        fail(Code::invalid_dtype,
             "optimizer: parameter '%s' is %s; the recipe wants %s, or fp32 for one kept in high "
             "precision",
             name, format_name(format), format_name(recipe.weight));
    }
}

void Parameters::check_values(int32_t index, const Tensor& values) const {
    const Parameter& p = (*this)[index];
    if (p.layout.is_frozen) {
        fail(Code::bad_state, "optimizer: '%s' is frozen, so it has no states", p.name.c_str());
    }
    if (!p.states.has_value()) {
        fail(Code::bad_state, "optimizer: the states of '%s' are on other ranks", p.name.c_str());
    }
    if (values.count() != slice(index).count) {
        fail(Code::invalid_shape,
             "optimizer: '%s' is %s, of which %lld elements have their states here, but the tensor "
             "of "
             "values is %s",
             p.name.c_str(), p.param->shape().text().c_str(),
             static_cast<long long>(slice(index).count), values.shape().text().c_str());
    }
    const DType dtype = values.dtype();
    if (values.scales() != nullptr ||
        (dtype != DType::fp32 && dtype != DType::fp16 && dtype != DType::bf16)) {
        fail(Code::invalid_dtype,
             "optimizer: the values for '%s' are %s; they must be fp32, fp16 or bf16 (codes are "
             "copied by mp_optimizer_get_state)",
             p.name.c_str(), format_text(values.format()).c_str());
    }
    const Stream& place = options_.offload ? context_->host_stream() : context_->stream();
    if (&values.device() != &place.device()) {
        fail(Code::invalid_argument, "optimizer: the values for '%s' are not on the %s",
             p.name.c_str(), options_.offload ? "host, where its states are" : "context's device");
    }
}

} // namespace mp::optim
