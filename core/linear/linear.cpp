// SPDX-License-Identifier: Apache-2.0
#include "linear/linear.hpp"

#include <optional>
#include <utility>

#include "linear/checks.hpp"

namespace mp::linear {
Linear::Linear(std::shared_ptr<Context> context, const recipe::Recipe& recipe,
               const LinearOptions& options, std::shared_ptr<Tensor> weight,
               std::shared_ptr<Tensor> bias)
    : context_(std::move(context)), recipe_(recipe), options_(options), weight_(std::move(weight)),
      bias_(std::move(bias)) {
    always_counts_ = options_.with_stats;
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

// Inputs of a call may be codes.
int64_t Linear::rows_of(const Tensor& tensor, int64_t columns, const char* name,
                        bool may_be_quantized) const {
    check_dtype(tensor, name, may_be_quantized);
    if (tensor.shape().ndim < 1 || tensor.shape().last() != columns) {
        fail(Code::invalid_shape, "linear: %s is %s; its last dimension must be %lld", name,
             tensor.shape().text().c_str(), static_cast<long long>(columns));
    }
    if (&tensor.device() != &weight_->device()) {
        fail(Code::invalid_argument, "linear: %s is not on the layer's device", name);
    }
    return tensor.count() / columns;
}

// Codes that somebody else made: their amax enters the delayed scale as if they had been made here.
void Linear::count_codes(Stream& stream, recipe::Operand operand, const Tensor& codes) const {
    const quant::Tracking tracking = scaling_.tracking(operand, false);
    if (codes.scales() == nullptr || tracking.slot == nullptr) {
        return;
    }
    // Rounding a number counts it.
    constexpr DType kType = DType::fp8_e5m2;
    constexpr auto kRule = numerics::ScaleRule::current;
    const Scratch code(stream, sizeof(float));
    const Scratch scale(stream, sizeof(float));
    quant::quantize_matrix(stream, codes.scales()->amax->ref(), 1, 1,
                           {kType, kTensorScale, numerics::scale_policy(kRule, kType)},
                           {code.data(), nullptr, scale.data(), nullptr},
                           {tracking.slot, 0, nullptr});
}

// ---- the weight ---------------------------------------------------------------------------------

bool Linear::keeps_weight(const MatrixForm& form) const noexcept {
    return options_.cache_weight || options_.frozen ||
           (form.is_quantized() && recipe_.fp8.weight_copy == recipe::WeightCopy::keep);
}

void Linear::forget_weight_copies() noexcept {
    for (WeightCopy& copy : weight_copies_) {
        copy.is_valid = false;
    }
}

const Tensor* Linear::given_codes(recipe::GemmRole role) const noexcept {
    const Tensor* const own = weight_codes_[static_cast<std::size_t>(role)].get();
    const bool shares = forms(role).b == forms(recipe::GemmRole::fprop).b;
    return own == nullptr && shares ? weight_codes_[0].get() : own;
}

OperandView Linear::weight_view(Stream& stream, recipe::GemmRole role,
                                std::optional<ScratchOperand>& scratch, bool with_stats) {
    if (const Tensor* const codes = given_codes(role); codes != nullptr) {
        count_codes(stream, recipe::Operand::weight, *codes);
        return view_of(*codes);
    }
    const MatrixForm& form = forms(role).b;
    const quant::Tracking tracking = scaling_.tracking(recipe::Operand::weight, with_stats);
    if (is_in_form(*weight_, form) || !keeps_weight(form)) {
        return scratch.emplace(stream, *weight_, form, tracking).view();
    }
    if (copied_version_ != weight_->version()) {
        forget_weight_copies();
        copied_version_ = weight_->version();
    }
    const bool shares = form == forms(recipe::GemmRole::fprop).b;
    WeightCopy& copy = weight_copies_[shares ? 0 : 1];
    if (!copy.is_valid) {
        const std::size_t before = copy.memory.bytes();
        (void)copy.memory.fill(stream, *weight_, form, tracking);
        copy.is_valid = true;
        if (copy.memory.bytes() != before) {
            context_->log(LogLevel::debug, [&] {
                return "linear: keeps its weight as " + form_text(form) + ", " +
                       std::to_string(copy.memory.bytes()) + " bytes";
            });
        }
    }
    return copy.memory.view();
}

void Linear::end_step(Stream& stream) {
    if (!options_.frozen) {
        forget_weight_copies();
    }
    scaling_.end_step(stream);
    gradients_begun_ = 0;
}

bool Linear::forgets_end_step() {
    const bool matters = options_.cache_weight || scaling_.slots() != nullptr;
    return matters && gradients_begun_ > 1 && !std::exchange(has_warned_, true);
}

std::string Linear::fallback() const {
    const recipe::Fp8Policy& policy = recipe_.fp8;
    const bool fits = options_.in_features % policy.multiple_of == 0 &&
                      options_.out_features % policy.multiple_of == 0;
    return policy.is_used() && !is_fp8() && !fits ? high_precision_reason_ : std::string();
}

void Linear::load_scaling(Stream& stream, const unsigned char* data, std::size_t size) {
    scaling_.load(stream, data, size);
    forget_weight_copies();
}

// ---- forward ------------------------------------------------------------------------------------

namespace {

void check_again(const Saved* saved, const Tensor& x, int64_t rows) {
    if (saved == nullptr || saved->rows() < 0) {
        fail(Code::bad_state,
             "linear: MP_FORWARD_RECOMPUTE before any forward that kept the scale");
    }
    if (rows != saved->rows()) {
        fail(Code::invalid_shape,
             "linear: x is %s but the forward that is computed again had %lld rows",
             x.shape().text().c_str(), static_cast<long long>(saved->rows()));
    }
}

} // namespace

void Linear::forward(Stream& stream, const std::shared_ptr<Tensor>& x, Tensor* y, Saved* saved,
                     Keep keep) {
    forget_old_plans();
    const int64_t rows = rows_of(*x, options_.in_features, "x", true);
    if (keep == Keep::again) {
        check_again(saved, *x, rows);
    }
    gemm::GemmPlan* product = nullptr;
    if (y != nullptr) {
        weight_->require_memory("linear: weight");
        if (rows_of(*y, options_.out_features, "y") != rows) {
            fail(Code::invalid_shape, "linear: x is %s but y is %s; both must have the same rows",
                 x->shape().text().c_str(), y->shape().text().c_str());
        }
        if (y->overlaps(*x) || overlaps_parameters(*y)) {
            fail(Code::invalid_argument,
                 "linear: y overlaps x, the weight or the bias; it needs memory of its own");
        }
        product = &plan(recipe::GemmRole::fprop, rows, y->dtype(), false);
    }
    if (saved != nullptr && keep != Keep::scale) {
        saved->memory().check_room(*x, forms(recipe::GemmRole::wgrad).b);
    }
    const quant::Tracking counted = track(recipe::Operand::input);
    const quant::Tracking tracking = keep == Keep::again ? saved->remembered(counted) : counted;
    if (keep != Keep::again) {
        count_codes(stream, recipe::Operand::input, *x);
        if (saved != nullptr) {
            saved->remember_scale(stream, counted);
        }
    }
    if (saved != nullptr && keep == Keep::scale) {
        saved->drop(rows);
    } else if (saved != nullptr) {
        saved->keep(stream, x, forms(recipe::GemmRole::wgrad).b, tracking);
    }
    if (product == nullptr) {
        return;
    }
    if (!options_.cache_weight && !options_.frozen) {
        forget_weight_copies(); // the caller may have written to the weight since
    }
    std::optional<ScratchOperand> w_scratch;
    const bool counts = options_.with_stats && keep != Keep::again;
    const OperandView w = weight_view(stream, recipe::GemmRole::fprop, w_scratch, counts);
    // The copy kept for backward serves as the operand too where both products want the same form.
    const MatrixForm& form = forms(recipe::GemmRole::fprop).a;
    const bool shares =
        saved != nullptr && saved->has_input() && forms(recipe::GemmRole::wgrad).b == form;
    std::optional<ScratchOperand> x_scratch;
    const OperandView input =
        shares ? saved->input() : x_scratch.emplace(stream, *x, form, tracking).view();
    product->run(stream, {input.data, w.data, bias_ != nullptr ? bias_->data() : nullptr, nullptr,
                          y->data(), input.scale_inv, w.scale_inv});
}

std::size_t Linear::saved_bytes(int64_t rows) const {
    return OperandMemory::bytes_of(forms(recipe::GemmRole::wgrad).b, rows, options_.in_features);
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
    if (!keeps_input()) {
        text +=
            options_.frozen ? "; frozen: keeps nothing of x" : "; inference: keeps nothing of x";
    } else if (last_.borrows()) {
        text += "; x: the caller's own " + form_text(kept) + " tensor, 0 bytes";
    } else {
        text += "; x: a copy in " + form_text(kept) + ", the type of the weight-gradient GEMM, " +
                std::to_string(last_.memory().bytes()) + " bytes";
    }
    for (const auto& [key, plan] : plans_) {
        text += std::string("; ") + recipe::role_name(std::get<recipe::GemmRole>(key)) + " with " +
                std::to_string(std::get<int64_t>(key)) + " rows: " + plan.describe();
    }
    return text;
}

} // namespace mp::linear
