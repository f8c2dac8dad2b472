// SPDX-License-Identifier: Apache-2.0
#include "optim/parameters_checks.hpp"

#include "system/name.hpp"

namespace mp::optim {
namespace {

// Null: nothing.
void check_scale(const char* name, const Tensor* tensor) {
    if (tensor != nullptr && tensor->scales() != nullptr && tensor->format().grid != kTensorScale) {
        fail(Code::invalid_dtype,
             "optimizer: '%s' has a tensor of %s; weights that are trained and gradients have one "
             "scale for the tensor (a frozen weight, MP_PARAM_FROZEN, may have any)",
             name, format_text(tensor->format()).c_str());
    }
}

// `what`: of the parameter's.
void check_beside(const Device& device, const char* name, const Tensor& param, const Tensor& tensor,
                  const char* what) {
    if (tensor.shape() != param.shape()) {
        fail(Code::invalid_shape, "optimizer: '%s' is %s but its %s is %s; they must be equal",
             name, param.shape().text().c_str(), what, tensor.shape().text().c_str());
    }
    if (&tensor.device() != &device) {
        fail(Code::invalid_argument,
             "optimizer: '%s' has a tensor that is not on the context's device", name);
    }
}

} // namespace

void check_trained(const recipe::Recipe& recipe, const LayoutOptions& layout,
                   const std::string& name, const Tensor& param) {
    check_scale(name.c_str(), &param);
    const FormatId format = kept_format(recipe, format_of(param), layout);
    if (format != FormatId::fp32 && format != recipe.weight) {
        fail(Code::invalid_dtype,
             "optimizer: parameter '%s' is %s; the recipe wants %s, or fp32 for one kept in high "
             "precision",
             name.c_str(), format_name(format), format_name(recipe.weight));
    }
}

namespace {

void check_format(const recipe::Recipe& recipe, const LayoutOptions& layout,
                  const NewParameter& p) {
    const char* name = p.name.c_str();
    if (!p.is_frozen) {
        check_scale(name, p.grad.get());
        if (p.grad != nullptr && is_in_blocks(p.grad->dtype())) {
            fail(Code::invalid_dtype,
                 "optimizer: grad of '%s' is %s, codes in blocks; those are no "
                 "gradients",
                 name, dtype_name(p.grad->dtype()));
        }
        check_trained(recipe, layout, p.name, *p.param);
        return;
    }
    const bool is_weight =
        p.param->scales() != nullptr || (format_roles(format_of(*p.param)) & kForParam) != 0;
    if (!is_weight) {
        fail(Code::invalid_dtype,
             "optimizer: frozen parameter '%s' is %s; it must be fp32, fp16, bf16, or codes with "
             "scales (mp_tensor_create_quantized)",
             name, format_text(p.param->format()).c_str());
    }
}

} // namespace

void check_new(const Device& device, const recipe::Recipe& recipe, const LayoutOptions& layout,
               const NewParameter& p) {
    system::check_name("optimizer: a parameter's name", p.name);
    const char* name = p.name.c_str();
    check_format(recipe, layout, p);
    for (const Tensor* tensor : {p.param.get(), p.grad.get(), p.init_fp32.get()}) {
        if (tensor != nullptr) {
            check_beside(device, name, *p.param, *tensor,
                         tensor == p.grad.get() ? "grad" : "init_fp32");
        }
    }
    if (p.init_fp32 != nullptr && p.init_fp32->dtype() != DType::fp32) {
        fail(Code::invalid_dtype, "optimizer: init_fp32 of '%s' is %s; it must be fp32", name,
             dtype_name(p.init_fp32->dtype()));
    }
    if (layout.grads_given && p.grad != nullptr) {
        fail(
            Code::invalid_argument,
            "optimizer: '%s' has a grad, but under MP_OPTIMIZER_GRADS_GIVEN each step is given one",
            name);
    }
    if (layout.offload_grads && layout.stage < 0 && p.grad != nullptr) {
        fail(Code::invalid_argument,
             "optimizer: '%s' has a grad, but under MP_OPTIMIZER_OFFLOAD_GRADS gradients have "
             "memory that comes and goes (mp_optimizer_acquire_grad); leave it NULL",
             name);
    }
    if (p.is_frozen && (p.grad != nullptr || p.init_fp32 != nullptr || p.counts_elsewhere)) {
        fail(Code::invalid_argument,
             "optimizer: '%s' is frozen, so it takes neither grad nor init_fp32 nor "
             "MP_PARAM_NORM_ELSEWHERE",
             name);
    }
}

void check_given(const Parameters& parameters, const Parameter& p, const Tensor& grad) {
    check_beside(p.param->device(), p.name.c_str(), *p.param, grad, "grad");
    check_scale(p.name.c_str(), &grad);
    if (&grad != p.grad.get()) {
        parameters.check_number(&grad, "gradient");
    }
}

void check_apart(const ClaimedMemory& memory, const NewParameter& p, const Layout& layout) {
    if (p.grad != nullptr && p.grad->overlaps(*p.param)) {
        fail(Code::invalid_argument, "optimizer: grad of '%s' overlaps the parameter in memory",
             p.name.c_str());
    }
    for (const Tensor* ours : {p.param.get(), p.grad.get()}) {
        const LayoutArray& use = ours == p.param.get() ? layout.weight : layout.grad;
        const std::string* const theirs =
            ours != nullptr && (ours->has_memory() || use.lifetime == Lifetime::always)
                ? memory.find(ours->place(), ours->bytes())
                : nullptr;
        if (theirs != nullptr) {
            fail(Code::invalid_argument,
                 "optimizer: the %s of '%s' overlaps the %s in memory; each parameter and gradient "
                 "needs memory of its own (a tied weight is added once)",
                 ours == p.param.get() ? "weight" : "gradient", p.name.c_str(), theirs->c_str());
        }
    }
}

void check_values(const Parameters& parameters, int32_t index, const Tensor& values) {
    const Parameter& p = parameters[index];
    if (p.layout.is_frozen) {
        fail(Code::bad_state, "optimizer: '%s' is frozen, so it has no states", p.name.c_str());
    }
    if (!p.states.has_value()) {
        fail(Code::bad_state, "optimizer: the states of '%s' are on other ranks", p.name.c_str());
    }
    if (values.count() != parameters.slice(index).count) {
        fail(Code::invalid_shape,
             "optimizer: '%s' is %s, of which %lld elements have their states here, but the tensor "
             "of "
             "values is %s",
             p.name.c_str(), p.param->shape().text().c_str(),
             static_cast<long long>(parameters.slice(index).count), values.shape().text().c_str());
    }
    const DType dtype = values.dtype();
    if (values.scales() != nullptr ||
        (dtype != DType::fp32 && dtype != DType::fp16 && dtype != DType::bf16)) {
        fail(Code::invalid_dtype,
             "optimizer: the values for '%s' are %s; they must be fp32, fp16 or bf16 (codes are "
             "copied by mp_optimizer_get_state)",
             p.name.c_str(), format_text(values.format()).c_str());
    }
    Stream& device = parameters.context().stream();
    const Stream& place = parameters.state_stream(index, device);
    if (&values.device() != &place.device()) {
        fail(Code::invalid_argument, "optimizer: the values for '%s' are not on the %s",
             p.name.c_str(), &place != &device ? "host, where its states are" : "context's device");
    }
}

} // namespace mp::optim
