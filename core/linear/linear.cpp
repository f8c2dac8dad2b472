// SPDX-License-Identifier: Apache-2.0
// A layer as it is made, the end of its step, and the forward half of Linear.
#include "linear/linear.hpp"

#include <cstring>
#include <optional>
#include <utility>

#include "linear/checks.hpp"
#include "recipe/layer_rules.hpp"
#include "system/fnv.hpp"

namespace mp::linear {

Linear::Linear(std::shared_ptr<Context> context, const recipe::Recipe& recipe,
               const LinearOptions& options, std::shared_ptr<Tensor> weight,
               std::shared_ptr<Tensor> bias)
    : context_(std::move(context)), recipe_(recipe::for_layer(recipe, options.name)),
      layer_rules_(recipe::fitting_patterns(recipe, options.name)), options_(options),
      weight_(std::move(weight)), bias_(std::move(bias)) {
    always_counts_ = options_.with_stats;
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
    choose_formats();
    if (is_fp8()) {
        scaling_ = ScalingState(context_->stream(), recipe_.fp8, options_.frozen);
        amaxes_ = ForwardAmaxes(context_->stream(), scaling_);
    }
    collect_stats(false);
}

void Linear::collect_stats(bool on) {
    options_.with_stats = on || always_counts_;
    if (options_.with_stats) {
        scaling_.begin_counts(context_->stream());
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

// Rounds to codes that nobody uses, with one scale for all.
void Linear::count_apart(Stream& stream, recipe::Operand operand, const Tensor& tensor) const {
    const DType type = // another than its own: equal codes are taken as they are, uncounted
        tensor.dtype() == DType::fp8_e5m2 ? DType::fp8_e4m3 : DType::fp8_e5m2;
    constexpr auto kRule = numerics::ScaleRule::current;
    const Format format{type, kTensorScale, numerics::scale_policy(kRule, type)};
    if (tensor.count() > 0) {
        const ScratchOperand codes(stream, tensor, format, scaling_.tracking_apart(operand));
    }
}

// Of a forward.
void Linear::count_unrounded(Stream& stream, const Tensor& x, bool keeps_input) const {
    const RoleFormats& fprop = formats(recipe::GemmRole::fprop);
    const bool is_kept_rounded =
        keeps_input && is_rounded_to(x, formats(recipe::GemmRole::wgrad).b);
    if (!is_rounded_to(x, fprop.a) && !is_kept_rounded) {
        count_apart(stream, recipe::Operand::input, x);
    }
    const Tensor* const codes = given_codes(recipe::GemmRole::fprop);
    if (codes != nullptr || !is_rounded_to(*weight_, fprop.b)) {
        count_apart(stream, recipe::Operand::weight, codes != nullptr ? *codes : *weight_);
    }
}

void Linear::end_step(Stream& stream) {
    if (!options_.frozen) {
        forget_weight_copies();
    }
    scaling_.end_step(stream);
    amaxes_.start_over(stream, !options_.frozen);
    gradients_begun_ = 0;
    weight_at_first_.reset();
}

namespace {

// Of some elements of the weight, so that it costs nothing: an optimizer's step changes nearly all. 0 where the host cannot look.
uint64_t weight_sample(const Tensor& weight) {
    constexpr int64_t kSamples = 64;
    system::Fnv64 hash;
    if (!weight.device().is_host() || !weight.has_memory() || weight.count() == 0) {
        return 0;
    }
    const auto size = static_cast<std::size_t>(dtype_size(weight.dtype()));
    const int64_t apart = weight.count() / kSamples | 1; // odd, so that not all lie in one column
    for (int64_t i = 0; i < weight.count(); i += apart) {
        uint64_t bits = 0;
        std::memcpy(&bits,
                    static_cast<const unsigned char*>(weight.data()) + bytes_of(weight.dtype(), i),
                    size);
        hash.add(static_cast<int64_t>(bits));
    }
    return hash.value();
}

} // namespace

void Linear::note_gradient(bool accumulates) {
    gradients_begun_ += accumulates ? 0 : 1;
    if (!weight_at_first_.has_value() && !has_warned_) {
        weight_at_first_ = weight_sample(*weight_);
    }
}

// Micro-batches that add their gradients all meet the weight of the first. After an optimizer's step it is another.
const char* Linear::forgotten_end_step() {
    const bool matters = options_.cache_weight || scaling_.delayed() != nullptr;
    if (!matters || has_warned_) {
        return nullptr;
    }
    const char* what = nullptr;
    if (gradients_begun_ > 1) {
        what = "a second gradient begins (without MP_BACKWARD_ACCUMULATE)";
    } else if (weight_at_first_.has_value() && *weight_at_first_ != weight_sample(*weight_)) {
        what = "a gradient is added to that of another weight (an optimizer's step was between)";
    }
    has_warned_ = what != nullptr;
    return what;
}

std::string Linear::fallback() const {
    const recipe::Fp8Policy& policy = recipe_.fp8;
    const bool fits = options_.in_features % policy.multiple_of == 0 &&
                      options_.out_features % policy.multiple_of == 0;
    return policy.is_used() && !is_fp8() && !fits ? high_precision_reason_ : std::string();
}

void Linear::load_scaling(Stream& stream, const unsigned char* data, std::size_t size) {
    scaling_.load(stream, data, size);
    amaxes_.load(stream, ScalingState::has_amaxes({data, size}));
    gradients_begun_ = 0;
    forget_weight_copies();
    weight_at_first_.reset(); // a checkpoint's weight is another
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

// Where this forward finds the scale of x, and where what is learned about x goes.
Tracking Linear::track_input(Stream& stream, const Tensor& x, Saved* saved, Keep keep) {
    if (keep == Keep::again) {
        return saved->remembered(track(recipe::Operand::input));
    }
    Tracking tracking =
        scaling_.tracking(recipe::Operand::input, options_.with_stats && keep != Keep::nothing);
    tracking.amax = amaxes_.of_input(stream, scaling_, saved);
    count_codes(stream, tracking, x);
    if (saved != nullptr) {
        saved->remember_scale(stream, tracking);
    }
    return tracking;
}

void Linear::add_own(const Stream& stream, MemoryRanges& ranges) const {
    ranges.add("the weight", MemoryRanges::Use::read, weight_.get());
    ranges.add("the bias", MemoryRanges::Use::read, bias_.get());
    for (const auto& codes : weight_codes_) {
        ranges.add("the weight's codes", MemoryRanges::Use::read, codes.get());
    }
    ranges.add_workspace(stream);
}

void Linear::check_apart(const Stream& stream, const Tensor& x, const Tensor* y, const Saved* saved,
                         Keep keep) const {
    MemoryRanges ranges;
    add_own(stream, ranges);
    ranges.add("x", MemoryRanges::Use::read, &x);
    ranges.add("y", MemoryRanges::Use::written, y);
    if (saved != nullptr && keep != Keep::scale) {
        saved->memory().add_to(ranges, MemoryRanges::Use::written,
                               formats(recipe::GemmRole::wgrad).b, x.rows(), x.columns());
    }
    ranges.check("linear");
}

namespace {

// Both may be deferred, or sharded and not gathered.
void require_memory(const Tensor& weight, const Tensor* bias) {
    weight.require_memory("linear: weight");
    if (bias != nullptr) {
        bias->require_memory("linear: bias");
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
        require_memory(*weight_, bias_.get());
        if (rows_of(*y, options_.out_features, "y") != rows) {
            fail(Code::invalid_shape, "linear: x is %s but y is %s; both must have the same rows",
                 x->shape().text().c_str(), y->shape().text().c_str());
        }
        product = &plan(recipe::GemmRole::fprop, rows, y->dtype(), false);
    }
    if (saved != nullptr && keep != Keep::scale) {
        saved->make_room(stream, *x, formats(recipe::GemmRole::wgrad).b, !options_.copy_input);
    }
    check_apart(stream, *x, y, saved, keep);
    const Tracking tracking = track_input(stream, *x, saved, keep);
    const Format& format = formats(recipe::GemmRole::fprop).a;
    const Format& kept = formats(recipe::GemmRole::wgrad).b;
    std::optional<ScratchOperand> x_scratch;
    if (saved != nullptr && keep == Keep::scale) {
        saved->drop(rows);
    } else if (saved != nullptr) {
        if (product != nullptr && is_read_once(*x, kept, format)) {
            x_scratch.emplace(stream, format, rows, options_.in_features);
        }
        saved->keep(stream, x, kept, tracking, !options_.copy_input,
                    x_scratch ? x_scratch->array() : ArrayRef());
    }
    if (product == nullptr) {
        return;
    }
    if (!options_.cache_weight && !options_.frozen) {
        forget_weight_copies(); // the caller may have written to the weight since
    }
    std::optional<ScratchOperand> w_scratch;
    const bool evaluates = keep == Keep::nothing;
    const bool counts = options_.with_stats && !evaluates && keep != Keep::again;
    if (counts) {
        count_unrounded(stream, *x, saved != nullptr && keep != Keep::scale);
    }
    const ArrayRef w = weight_view(stream, recipe::GemmRole::fprop, w_scratch, counts, evaluates);
    // The copy kept for backward serves as the operand too where both products want the same format.
    const bool shares = saved != nullptr && saved->has_input() && kept == format;
    if (!shares && !x_scratch) {
        x_scratch.emplace(stream, *x, format, tracking);
    }
    const ArrayRef input = shares ? saved->input(stream) : x_scratch->array();
    if (!evaluates && !options_.inference) {
        amaxes_.forward_done(stream, keep == Keep::again ? nullptr : tracking.amax);
    }
    product->run(stream, {input.data, w.data, bias_ != nullptr ? bias_->data() : nullptr, nullptr,
                          y->data(), input.scale_inv, w.scale_inv});
}

std::size_t Linear::saved_bytes(int64_t rows) const {
    return OperandMemory::bytes_of(formats(recipe::GemmRole::wgrad).b, rows, options_.in_features);
}

std::string Linear::describe() const {
    std::string text =
        "linear " + weight_->shape().text() + ", weight " + format_text(weight_->format());
    if (!layer_rules_.empty()) {
        text += "; by the recipe's layers '" + layer_rules_ + "'";
    }
    if (recipe_.fp8.is_used() || !layer_rules_.empty()) {
        text += is_fp8() ? "; fp8" : "; in high precision: " + high_precision_reason_;
    }
    for (const recipe::GemmRole role : {recipe::GemmRole::fprop, recipe::GemmRole::dgrad}) {
        const Format& format = formats(role).b;
        if (has_format(*weight_, format) ||
            (role == recipe::GemmRole::dgrad && format == formats(recipe::GemmRole::fprop).b)) {
            continue;
        }
        const std::size_t bytes = weight_copies_[static_cast<std::size_t>(role)].memory.bytes();
        text += ", rounded to " + format_text(format) + " for " + recipe::role_name(role);
        text += keeps_weight(format) ? ", kept (" + std::to_string(bytes) + " bytes)"
                                     : std::string(" at each use, nothing kept");
    }
    const Format& kept = formats(recipe::GemmRole::wgrad).b;
    if (!keeps_input()) {
        text +=
            options_.frozen ? "; frozen: keeps nothing of x" : "; inference: keeps nothing of x";
    } else if (last_.borrows()) {
        text += "; x: the caller's own " + format_text(kept) + " tensor, 0 bytes";
    } else {
        text += "; x: a copy in " + format_text(kept) + ", the type of the weight-gradient GEMM, " +
                std::to_string(last_.memory().bytes()) + " bytes";
    }
    for (const auto& [key, plan] : plans_) {
        text += std::string("; ") + recipe::role_name(std::get<recipe::GemmRole>(key)) + " with " +
                std::to_string(std::get<int64_t>(key)) + " rows: " + plan.describe();
    }
    return text;
}

} // namespace mp::linear
