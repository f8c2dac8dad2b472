// SPDX-License-Identifier: Apache-2.0
#include "linear/linear.hpp"

#include <optional>

namespace mp::linear {
namespace {

// `may_be_quantized`: weights and their gradients.
void check_dtype(const Tensor& tensor, const char* name, bool may_be_quantized = false) {
    if (tensor.scales() != nullptr) {
        if (!may_be_quantized) {
            fail(Code::invalid_dtype, "linear: %s is quantized; it must be fp32, fp16 or bf16",
                 name);
        }
        return;
    }
    if (!is_high_precision(tensor.dtype())) {
        fail(Code::invalid_dtype, "linear: %s is %s; it must be fp32, fp16 or bf16", name,
             dtype_name(tensor.dtype()));
    }
}

void check_shape_is(const Tensor& tensor, const Shape& wanted, const char* name) {
    if (tensor.shape() != wanted) {
        fail(Code::invalid_shape, "linear: %s is %s; it must be %s", name,
             tensor.shape().text().c_str(), wanted.text().c_str());
    }
}

} // namespace

Linear::Linear(std::shared_ptr<Context> context, const recipe::Recipe& recipe,
               const LinearOptions& options, std::shared_ptr<Tensor> weight,
               std::shared_ptr<Tensor> bias)
    : context_(std::move(context)), recipe_(recipe), options_(options), weight_(std::move(weight)),
      bias_(std::move(bias)) {
    recipe::check_recipe(recipe_);
    if (options_.in_features <= 0 || options_.out_features <= 0) {
        fail(Code::invalid_shape,
             "linear: in_features is %lld and out_features is %lld; both must be positive",
             static_cast<long long>(options_.in_features),
             static_cast<long long>(options_.out_features));
    }
    check_dtype(*weight_, "weight", true);
    check_shape_is(*weight_, {{options_.out_features, options_.in_features}, 2}, "weight");
    if (bias_ != nullptr) {
        check_dtype(*bias_, "bias");
        check_shape_is(*bias_, {{options_.out_features}, 1}, "bias");
    }
    for (const Tensor* tensor : {weight_.get(), bias_.get()}) {
        if (tensor != nullptr && &tensor->device() != &context_->stream().device()) {
            fail(Code::invalid_argument, "linear: weight and bias must be on the context's device");
        }
    }
    choose_forms();
    if (is_fp8()) {
        scaling_ = ScalingState(context_->stream(), recipe_.fp8);
    }
}

int64_t Linear::rows_of(const Tensor& tensor, int64_t columns, const char* name) const {
    check_dtype(tensor, name);
    if (tensor.shape().ndim < 1 || tensor.shape().last() != columns) {
        fail(Code::invalid_shape, "linear: %s is %s; its last dimension must be %lld", name,
             tensor.shape().text().c_str(), static_cast<long long>(columns));
    }
    if (&tensor.device() != &weight_->device()) {
        fail(Code::invalid_argument, "linear: %s is not on the layer's device", name);
    }
    return tensor.count() / columns;
}

// ---- the weight ---------------------------------------------------------------------------------

bool Linear::keeps_weight(const MatrixForm& form) const noexcept {
    return options_.cache_weight ||
           (form.is_quantized() && recipe_.fp8.weight_copy == recipe::WeightCopy::keep);
}

void Linear::forget_weight_copies() noexcept {
    for (WeightCopy& copy : weight_copies_) {
        copy.is_valid = false;
    }
}

OperandView Linear::weight_view(Stream& stream, recipe::GemmRole role,
                                std::optional<ScratchOperand>& scratch) {
    const MatrixForm& form = forms(role).b;
    if (is_in_form(*weight_, form) || !keeps_weight(form)) {
        return scratch.emplace(stream, *weight_, form, track(recipe::Operand::weight)).view();
    }
    if (copied_version_ != weight_->version()) {
        forget_weight_copies();
        copied_version_ = weight_->version();
    }
    const bool shares = form == forms(recipe::GemmRole::fprop).b;
    WeightCopy& copy = weight_copies_[shares ? 0 : 1];
    if (!copy.is_valid) {
        (void)copy.memory.fill(stream, *weight_, form, track(recipe::Operand::weight));
        copy.is_valid = true;
    }
    return copy.memory.view();
}

void Linear::end_step(Stream& stream) {
    forget_weight_copies();
    scaling_.end_step(stream);
}

void Linear::load_scaling(Stream& stream, const unsigned char* data, std::size_t size) {
    scaling_.load(stream, data, size);
    forget_weight_copies();
}

// ---- forward ------------------------------------------------------------------------------------

void Linear::keep_input(Stream& stream, const std::shared_ptr<Tensor>& x) {
    const MatrixForm& form = forms(recipe::GemmRole::wgrad).b;
    if (is_in_form(*x, form)) {
        borrowed_input_ = x;
        kept_.release();
    } else {
        kept_rows_ = -1; // until the new input is complete
        borrowed_input_ = nullptr;
        (void)kept_.fill(stream, *x, form, track(recipe::Operand::input));
    }
    kept_rows_ = x->count() / options_.in_features;
}

OperandView Linear::kept_input() const noexcept {
    return borrowed_input_ != nullptr ? OperandView{borrowed_input_->data(), nullptr}
                                      : kept_.view();
}

void Linear::forward(Stream& stream, const std::shared_ptr<Tensor>& x, Tensor& y) {
    forget_old_plans();
    weight_->require_memory("linear: weight");
    const int64_t rows = rows_of(*x, options_.in_features, "x");
    if (rows_of(y, options_.out_features, "y") != rows) {
        fail(Code::invalid_shape, "linear: x is %s but y is %s; both must have the same rows",
             x->shape().text().c_str(), y.shape().text().c_str());
    }
    if (y.overlaps(*x) || y.overlaps(*weight_)) {
        fail(Code::invalid_argument,
             "linear: y overlaps x or the weight; it needs memory of its own");
    }
    gemm::GemmPlan& product = plan(recipe::GemmRole::fprop, rows, y.dtype(), false);
    if (!options_.cache_weight) {
        forget_weight_copies(); // the caller may have written to the weight since
    }
    std::optional<ScratchOperand> w_scratch;
    const OperandView w = weight_view(stream, recipe::GemmRole::fprop, w_scratch);
    // The copy kept for backward serves as the operand too where both products want the same form.
    const MatrixForm& form = forms(recipe::GemmRole::fprop).a;
    const bool shares = !options_.inference && forms(recipe::GemmRole::wgrad).b == form;
    if (!options_.inference) {
        keep_input(stream, x);
    }
    std::optional<ScratchOperand> x_scratch;
    const OperandView input =
        shares ? kept_input()
               : x_scratch.emplace(stream, *x, form, track(recipe::Operand::input)).view();
    product.run(stream, {input.data, w.data, bias_ != nullptr ? bias_->data() : nullptr, nullptr,
                         y.data(), input.scale_inv, w.scale_inv});
}

// ---- backward -----------------------------------------------------------------------------------

void Linear::check_gradients(const Tensor& dy, int64_t rows, const WeightGradients& g) const {
    if (options_.inference) {
        fail(Code::bad_state,
             "linear: backward_weight needs a layer made without MP_LINEAR_INFERENCE");
    }
    if (kept_rows_ < 0) {
        fail(Code::bad_state,
             "linear: backward_weight before any forward; call mp_linear_forward first");
    }
    if (rows != kept_rows_) {
        fail(Code::invalid_shape, "linear: dy is %s but the last forward had %lld rows",
             dy.shape().text().c_str(), static_cast<long long>(kept_rows_));
    }
    check_dtype(*g.dw, "dw", true);
    check_shape_is(*g.dw, weight_->shape(), "dw");
    if (g.dbias != nullptr) {
        if (bias_ == nullptr) {
            fail(Code::invalid_argument,
                 "linear: dbias is given but the layer has no bias; pass NULL");
        }
        check_dtype(*g.dbias, "dbias");
        check_shape_is(*g.dbias, bias_->shape(), "dbias");
    }
    for (const Tensor* tensor :
         {static_cast<const Tensor*>(g.dw), static_cast<const Tensor*>(g.dbias)}) {
        if (tensor != nullptr &&
            (&tensor->device() != &weight_->device() || tensor->overlaps(dy))) {
            fail(Code::invalid_argument,
                 "linear: dw and dbias must be on the layer's device, apart from dy");
        }
    }
}

// A quantized gradient is added to in fp32 and rounded once.
gemm::GemmPlan& Linear::weight_gradient_plan(const Tensor& dw, bool accumulate) {
    const DType result = dw.scales() != nullptr ? DType::fp32 : dw.dtype();
    return plan(recipe::GemmRole::wgrad, kept_rows_, result, accumulate);
}

void Linear::weight_gradient_product(Stream& stream, const OperandView& dy, Tensor& dw,
                                     bool accumulate) {
    const OperandView x = kept_input();
    const bool is_quantized = dw.scales() != nullptr;
    std::optional<Scratch> wide;
    void* target = dw.data();
    if (is_quantized) {
        wide.emplace(stream, static_cast<std::size_t>(dw.count()) * sizeof(float));
        target = wide->data();
        if (accumulate) {
            quant::dequantize_matrix(stream, dw.scaled_ref(), {target, dw.count(), DType::fp32});
        }
    }
    gemm::GemmPlan& product = weight_gradient_plan(dw, accumulate);
    product.run(stream, {dy.data, x.data, nullptr, accumulate ? target : nullptr, target,
                         dy.scale_inv, x.scale_inv});
    dw.touch();
    if (is_quantized) {
        const TensorScales& scales = *dw.scales();
        quant::quantize_matrix(stream, {target, dw.count(), DType::fp32}, dw.rows(), dw.columns(),
                               dw.form(),
                               {dw.data(), nullptr, scales.scale_inv->data(),
                                static_cast<float*>(scales.amax->data())});
    }
}

void Linear::weight_gradient(Stream& stream, const Tensor& dy, const OperandView& dy_view,
                             const WeightGradients& g) {
    weight_gradient_product(stream, dy_view, *g.dw, g.accumulate);
    if (g.dbias != nullptr) {
        ColumnSumDesc op{};
        op.kind = OpKind::column_sum;
        op.source = dy.ref();
        op.destination = g.dbias->ref();
        op.rows = kept_rows_;
        op.columns = options_.out_features;
        op.accumulate = g.accumulate;
        run_op(stream, op);
    }
}

void Linear::backward(Stream& stream, const Tensor& dy, Tensor* dx,
                      const WeightGradients& gradients) {
    forget_old_plans();
    const int64_t rows = rows_of(dy, options_.out_features, "dy");
    gemm::GemmPlan* data_product = nullptr;
    if (dx != nullptr) {
        weight_->require_memory("linear: weight");
        if (rows_of(*dx, options_.in_features, "dx") != rows) {
            fail(Code::invalid_shape, "linear: dy is %s but dx is %s; both must have the same rows",
                 dy.shape().text().c_str(), dx->shape().text().c_str());
        }
        if (dx->overlaps(dy) || dx->overlaps(*weight_)) {
            fail(Code::invalid_argument,
                 "linear: dx overlaps dy or the weight; it needs memory of its own");
        }
        data_product = &plan(recipe::GemmRole::dgrad, rows, dx->dtype(), false);
    }
    if (gradients.dw != nullptr) {
        check_gradients(dy, rows, gradients);
        // Before dx is written: a failed call changes nothing.
        (void)weight_gradient_plan(*gradients.dw, gradients.accumulate);
    }
    std::optional<ScratchOperand> dy_operand;
    if (data_product != nullptr) {
        dy_operand.emplace(stream, dy, forms(recipe::GemmRole::dgrad).a,
                           track(recipe::Operand::grad_output));
        std::optional<ScratchOperand> w_scratch;
        const OperandView w = weight_view(stream, recipe::GemmRole::dgrad, w_scratch);
        const OperandView& view = dy_operand->view();
        data_product->run(
            stream, {view.data, w.data, nullptr, nullptr, dx->data(), view.scale_inv, w.scale_inv});
    }
    if (gradients.dw != nullptr) {
        const MatrixForm& form = forms(recipe::GemmRole::wgrad).a;
        if (!dy_operand.has_value() || form != forms(recipe::GemmRole::dgrad).a) {
            dy_operand.reset();
            dy_operand.emplace(stream, dy, form, track(recipe::Operand::grad_output));
        }
        weight_gradient(stream, dy, dy_operand->view(), gradients);
    }
}

std::string Linear::describe() const {
    std::string text =
        "linear " + weight_->shape().text() + ", weight " + form_text(weight_->form());
    if (recipe_.fp8.is_used()) {
        text += is_fp8() ? "; fp8" : "; in high precision: " + high_precision_reason_;
    }
    for (const recipe::GemmRole role : {recipe::GemmRole::fprop, recipe::GemmRole::dgrad}) {
        const MatrixForm& form = forms(role).b;
        if (is_in_form(*weight_, form) ||
            (role == recipe::GemmRole::dgrad && form == forms(recipe::GemmRole::fprop).b)) {
            continue;
        }
        const std::size_t bytes = weight_copies_[static_cast<std::size_t>(role)].memory.bytes();
        text += ", rounded to " + form_text(form) + " for " + recipe::role_name(role);
        text += keeps_weight(form) ? ", kept (" + std::to_string(bytes) + " bytes)"
                                   : std::string(" at each use, nothing kept");
    }
    const MatrixForm& kept = forms(recipe::GemmRole::wgrad).b;
    if (options_.inference) {
        text += "; inference: keeps nothing of x";
    } else if (borrowed_input_ != nullptr) {
        text += "; x: the caller's own " + form_text(kept) + " tensor, 0 bytes";
    } else {
        text += "; x: a copy in " + form_text(kept) + ", the type of the weight-gradient GEMM, " +
                std::to_string(kept_.bytes()) + " bytes";
    }
    for (const auto& [key, plan] : plans_) {
        text += std::string("; ") + recipe::role_name(std::get<recipe::GemmRole>(key)) + " with " +
                std::to_string(std::get<int64_t>(key)) + " rows: " + plan.describe();
    }
    return text;
}

} // namespace mp::linear
