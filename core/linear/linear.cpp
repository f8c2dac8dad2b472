// SPDX-License-Identifier: Apache-2.0
#include "linear/linear.hpp"

#include <optional>

namespace mp {
namespace {

bool is_activation(DType dtype) {
    return dtype == DType::fp32 || dtype == DType::fp16 || dtype == DType::bf16;
}

void check_dtype(const Tensor& tensor, const char* name) {
    if (!is_activation(tensor.dtype())) {
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

std::size_t bytes_for(int64_t count, DType dtype) {
    return static_cast<std::size_t>(count * dtype_size(dtype));
}

} // namespace

class Linear::Operand {
  public:
    Operand(Stream& stream, const Tensor& tensor, DType dtype) : data_(tensor.data()) {
        if (tensor.dtype() != dtype) {
            scratch_.emplace(stream, bytes_for(tensor.count(), dtype));
            data_ = scratch_->data();
            cast_tensor(stream, tensor.ref(), {scratch_->data(), tensor.count(), dtype});
        }
    }
    [[nodiscard]] const void* data() const noexcept { return data_; }

  private:
    std::optional<Scratch> scratch_;
    const void* data_;
};

Linear::Linear(std::shared_ptr<Context> context, const Recipe& recipe, const LinearOptions& options,
               std::shared_ptr<Tensor> weight, std::shared_ptr<Tensor> bias)
    : context_(std::move(context)), recipe_(recipe), options_(options), weight_(std::move(weight)),
      bias_(std::move(bias)) {
    check_recipe(recipe_);
    if (options_.in_features <= 0 || options_.out_features <= 0) {
        fail(Code::invalid_shape,
             "linear: in_features is %lld and out_features is %lld; both must be positive",
             static_cast<long long>(options_.in_features),
             static_cast<long long>(options_.out_features));
    }
    check_dtype(*weight_, "weight");
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

GemmPlan& Linear::plan(Role role, int64_t rows, DType result, bool accumulate) {
    const PlanKey key(role, rows, result, accumulate);
    if (const auto found = plans_.find(key); found != plans_.end()) {
        return found->second;
    }
    GemmDesc d{};
    d.dtype_d = result;
    d.beta = accumulate ? 1.0F : 0.0F;
    switch (role) {
    case Role::fprop: // y [rows, out] = x [rows, in] * w [out, in]^T + bias
        d.m = rows, d.n = options_.out_features, d.k = options_.in_features;
        d.trans_b = true;
        d.dtype_a = recipe_.fprop;
        d.dtype_bias = bias_ != nullptr ? bias_->dtype() : DType::none;
        break;
    case Role::dgrad: // dx [rows, in] = dy [rows, out] * w [out, in]
        d.m = rows, d.n = options_.in_features, d.k = options_.out_features;
        d.dtype_a = recipe_.dgrad;
        break;
    case Role::wgrad: // dw [out, in] = dy [rows, out]^T * x [rows, in]
        d.m = options_.out_features, d.n = options_.in_features, d.k = rows;
        d.trans_a = true;
        d.dtype_a = recipe_.wgrad;
        break;
    }
    d.dtype_b = d.dtype_a;
    return plans_.emplace(key, GemmPlan(weight_->stream().shared_device(), d)).first->second;
}

void Linear::keep_input(Stream& stream, const std::shared_ptr<Tensor>& x) {
    if (x->dtype() == recipe_.wgrad) {
        borrowed_input_ = x;
        kept_ = Buffer();
    } else {
        const std::size_t bytes = bytes_for(x->count(), recipe_.wgrad);
        if (kept_.bytes() < bytes) {
            kept_ = Buffer(stream.shared_device(), bytes);
        }
        kept_rows_ = -1; // until the new input is complete
        borrowed_input_ = nullptr;
        cast_tensor(stream, x->ref(), {kept_.data(), x->count(), recipe_.wgrad});
    }
    kept_rows_ = x->count() / options_.in_features;
}

// A caller whose number of rows never repeats must not fill memory with plans.
void Linear::forget_old_plans() {
    constexpr std::size_t kMaxPlans = 64;
    if (plans_.size() > kMaxPlans) {
        plans_.clear();
    }
}

void Linear::forward(Stream& stream, const std::shared_ptr<Tensor>& x, Tensor& y) {
    forget_old_plans();
    const int64_t rows = rows_of(*x, options_.in_features, "x");
    if (rows_of(y, options_.out_features, "y") != rows) {
        fail(Code::invalid_shape, "linear: x is %s but y is %s; both must have the same rows",
             x->shape().text().c_str(), y.shape().text().c_str());
    }
    if (y.overlaps(*x) || y.overlaps(*weight_)) {
        fail(Code::invalid_argument,
             "linear: y overlaps x or the weight; it needs memory of its own");
    }
    GemmPlan& product = plan(Role::fprop, rows, y.dtype(), false);
    const Operand w(stream, *weight_, recipe_.fprop);
    // The copy kept for backward serves as the operand too where both GEMMs want the same type.
    const bool shares = !options_.inference && recipe_.wgrad == recipe_.fprop;
    if (!options_.inference) {
        keep_input(stream, x);
    }
    std::optional<Operand> rounded;
    if (!shares) {
        rounded.emplace(stream, *x, recipe_.fprop);
    }
    const void* kept = borrowed_input_ != nullptr ? borrowed_input_->data() : kept_.data();
    product.run(stream, {shares ? kept : rounded->data(), w.data(),
                         bias_ != nullptr ? bias_->data() : nullptr, nullptr, y.data()});
}

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
    check_dtype(*g.dw, "dw");
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

void Linear::weight_gradient(Stream& stream, const Tensor& dy, const void* dy_rounded,
                             const WeightGradients& g) {
    const void* input = borrowed_input_ != nullptr ? borrowed_input_->data() : kept_.data();
    GemmPlan& product = plan(Role::wgrad, kept_rows_, g.dw->dtype(), g.accumulate);
    product.run(stream,
                {dy_rounded, input, nullptr, g.accumulate ? g.dw->data() : nullptr, g.dw->data()});
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
    GemmPlan* data_product = nullptr;
    if (dx != nullptr) {
        if (rows_of(*dx, options_.in_features, "dx") != rows) {
            fail(Code::invalid_shape, "linear: dy is %s but dx is %s; both must have the same rows",
                 dy.shape().text().c_str(), dx->shape().text().c_str());
        }
        if (dx->overlaps(dy) || dx->overlaps(*weight_)) {
            fail(Code::invalid_argument,
                 "linear: dx overlaps dy or the weight; it needs memory of its own");
        }
        data_product = &plan(Role::dgrad, rows, dx->dtype(), false);
    }
    if (gradients.dw != nullptr) {
        check_gradients(dy, rows, gradients);
        (void)plan(Role::wgrad, kept_rows_, gradients.dw->dtype(), gradients.accumulate);
    }
    std::optional<Operand> dy_rounded;
    if (data_product != nullptr) {
        dy_rounded.emplace(stream, dy, recipe_.dgrad);
        const Operand w(stream, *weight_, recipe_.dgrad);
        data_product->run(stream, {dy_rounded->data(), w.data(), nullptr, nullptr, dx->data()});
    }
    if (gradients.dw != nullptr) {
        if (!dy_rounded.has_value() || recipe_.wgrad != recipe_.dgrad) {
            dy_rounded.emplace(stream, dy, recipe_.wgrad);
        }
        weight_gradient(stream, dy, dy_rounded->data(), gradients);
    }
}

std::string Linear::describe() const {
    std::string text =
        "linear " + weight_->shape().text() + ", weight " + dtype_name(weight_->dtype());
    if (weight_->dtype() != recipe_.fprop) {
        text += std::string(", rounded to ") + dtype_name(recipe_.fprop) +
                " for each use, nothing kept";
    }
    if (options_.inference) {
        text += "; inference: keeps nothing of x";
    } else if (borrowed_input_ != nullptr) {
        text +=
            std::string("; x: the caller's own ") + dtype_name(recipe_.wgrad) + " tensor, 0 bytes";
    } else {
        text += std::string("; x: a copy in ") + dtype_name(recipe_.wgrad) +
                ", the type of the weight-gradient GEMM, " + std::to_string(kept_.bytes()) +
                " bytes";
    }
    for (const auto& [key, plan] : plans_) {
        const char* const roles[] = {"fprop", "dgrad", "wgrad"};
        text += std::string("; ") + roles[static_cast<int>(std::get<Role>(key))] + " with " +
                std::to_string(std::get<int64_t>(key)) + " rows: " + plan.describe();
    }
    return text;
}

} // namespace mp
