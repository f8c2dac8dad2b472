// SPDX-License-Identifier: Apache-2.0
// A layer as it is made, and the end of its step.
#include "linear/linear.hpp"

#include <utility>

#include "linear/checks.hpp"

namespace mp::linear {
namespace {

std::shared_ptr<const recipe::LayerPolicy> policy_of(const recipe::Recipe& recipe,
                                                     const LinearOptions& options, DType weight) {
    const recipe::LayerSizes sizes = {options.in_features, options.out_features,
                                      options.is_first_or_last,
                                      is_in_blocks(weight) ? weight : DType::none};
    return std::make_shared<const recipe::LayerPolicy>(recipe, options.name, sizes);
}

// No gradient could be added to such codes.
void require_not_trained(const LinearOptions& options, const Tensor& weight) {
    if (!options.frozen && !options.inference) {
        fail(Code::invalid_dtype,
             "linear: weight is %s, whose codes are not trained; set MP_LINEAR_FROZEN, or make "
             "numbers of it with mp_tensor_dequantize",
             dtype_name(weight.dtype()));
    }
}

} // namespace

Linear::Linear(std::shared_ptr<Context> context, const recipe::Recipe& recipe,
               const LinearOptions& options, std::shared_ptr<Tensor> weight,
               std::shared_ptr<Tensor> bias)
    : context_(std::move(context)), options_(options), always_counts_(options.with_stats),
      policy_(policy_of(recipe, options, weight->dtype())),
      weight_(context_, policy_, std::move(weight), {options.frozen, options.cache_weight}),
      bias_(std::move(bias)),
      products_(context_, weight_.tensor().stream().shared_device(), policy_,
                {options.in_features, options.out_features,
                 bias_ != nullptr ? bias_->dtype() : DType::none, options.scale}),
      notes_(false) {
    if (options_.in_features <= 0 || options_.out_features <= 0) {
        fail(Code::invalid_shape,
             "linear: in_features is %lld and out_features is %lld; both must be positive",
             static_cast<long long>(options_.in_features),
             static_cast<long long>(options_.out_features));
    }
    if (is_in_blocks(weight_.tensor().dtype())) {
        require_not_trained(options_, weight_.tensor());
    } else {
        check_dtype(weight_.tensor(), "weight", true);
    }
    check_shape_is(weight_.tensor(), {{options_.out_features, options_.in_features}, 2}, "weight");
    if (bias_ != nullptr) {
        check_dtype(*bias_, "bias");
        check_shape_is(*bias_, {{options_.out_features}, 1}, "bias");
    }
    for (const Tensor* tensor : {&weight_.tensor(), static_cast<const Tensor*>(bias_.get())}) {
        if (tensor != nullptr && &tensor->device() != &context_->stream().device()) {
            fail(Code::invalid_argument, "linear: weight and bias must be on the context's device");
        }
    }
    if (policy_->is_fp8()) {
        scaling_ = ScalingState(context_->stream(), policy_->recipe().fp8, options_.frozen);
        amaxes_ = ForwardAmaxes(context_->stream(), scaling_);
    }
    if (options_.drop_below > 0 && !options_.inference) {
        dropout_ = Dropout(options_.drop_below, options_.name);
        scaling_.keep_passes();
    }
    notes_ = GradientNotes(options_.cache_weight || scaling_.delayed() != nullptr);
    collect_stats(false);
}

void Linear::collect_stats(bool on) {
    options_.with_stats = on || always_counts_;
    if (options_.with_stats) {
        scaling_.begin_counts(context_->stream());
    }
}

void Linear::end_step(Stream& stream) {
    if (!options_.frozen) {
        weight_.forget();
    }
    scaling_.end_step(stream);
    amaxes_.start_over(stream, !options_.frozen);
    notes_.start_over();
}

void Linear::load_scaling(Stream& stream, const unsigned char* data, std::size_t size) {
    scaling_.load(stream, data, size);
    amaxes_.load(stream, ScalingState::has_amaxes({data, size}));
    weight_.forget();
    notes_.start_over();
}

void Linear::set_trainer(const Trainer& trainer) noexcept {
    Passes& passes = scaling_.passes();
    if (passes.seed() != trainer.seed && policy_->rounds_stochastically()) {
        weight_.forget();
    }
    passes.set_trainer(trainer);
}

void Linear::refuse_frozen_bits(const Stream& stream) const {
    if (policy_->rounds_stochastically()) {
        stream.refuse_capture("linear: operands are rounded stochastically (gemm.*.rounding), by "
                              "other random bits in every pass");
    }
    if (dropout_.is_used()) {
        stream.refuse_capture("linear: each pass drops other elements of x");
    }
}

Sink Linear::making(recipe::GemmRole role, recipe::Operand operand, const Tracking& tracking,
                    uint64_t time) const {
    return sink_by(tracking, scaling_.passes().at(policy_->resolve(role, operand).rounding, time));
}

void Linear::add_own(MemoryRanges& ranges) const {
    weight_.add_to(ranges);
    ranges.add("the bias", MemoryRanges::Use::read, bias_.get());
}

std::string Linear::describe() const {
    const Tensor& weight = weight_.tensor();
    std::string text =
        "linear " + weight.shape().text() + ", weight " + format_text(weight.format());
    if (!policy_->rules().empty()) {
        text += "; by the recipe's layers '" + policy_->rules() + "'";
    }
    if (policy_->recipe().fp8.is_used() || !policy_->rules().empty()) {
        text += policy_->is_fp8() ? "; fp8"
                                  : "; in high precision: " + policy_->high_precision_reason();
    }
    for (const recipe::Operand operand :
         {recipe::Operand::input, recipe::Operand::weight, recipe::Operand::grad_output}) {
        if (policy_->is_fp8() && policy_->recipe().fp8.rounds_stochastically(operand)) {
            text += std::string("; codes of ") + recipe::operand_name(operand) +
                    " rounded stochastically";
        }
    }
    text += weight_.describe();
    const Format& kept = policy_->b(recipe::GemmRole::wgrad);
    if (!keeps_input()) {
        text +=
            options_.frozen ? "; frozen: keeps nothing of x" : "; inference: keeps nothing of x";
    } else if (last_.borrows()) {
        text += "; x: the caller's own " + format_text(kept) + " tensor, 0 bytes";
    } else {
        text += "; x: a copy in " + format_text(kept) + ", the type of the weight-gradient GEMM, " +
                std::to_string(last_.memory().bytes()) + " bytes";
    }
    return text + products_.describe();
}

std::size_t saved_bytes(const Linear& layer, int64_t rows) {
    return OperandMemory::bytes_of(layer.policy().b(recipe::GemmRole::wgrad), rows,
                                   layer.options().in_features);
}

void quantize_operand(Stream& stream, const Linear& layer, recipe::GemmRole role,
                      recipe::Operand operand, const Tensor& source, Tensor& codes) {
    const recipe::OperandForm& form = layer.policy().resolve(role, operand);
    const Format& format = form.format;
    if (!format.is_quantized()) {
        fail(Code::invalid_argument,
             "linear: %s takes %s rounded to %s, without scales; use mp_tensor_cast",
             recipe::role_name(role), recipe::operand_name(operand), dtype_name(format.dtype));
    }
    check_codes(codes, format, layer.weight().tensor().device(), "codes");
    layer.refuse_frozen_bits(stream);
    const Passes& passes = layer.scaling().passes();
    const uint64_t time = operand == recipe::Operand::input         ? passes.of_forward()
                          : operand == recipe::Operand::grad_output ? passes.of_backward().time
                          : layer.options().frozen                  ? 0
                                                                    : passes.of_weight();
    quant::quantize_tensor(stream, source, codes, nullptr,
                           sink_by(layer.scaling().tracking(operand, layer.options().with_stats),
                                   passes.at(form.rounding, time)));
}

} // namespace mp::linear
