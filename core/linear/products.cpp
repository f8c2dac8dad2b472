// SPDX-License-Identifier: Apache-2.0
// The three products of a layer: the formats of their operands, and a plan for each number of rows.
#include "linear/checks.hpp"
#include "linear/linear.hpp"

namespace mp::linear {
namespace {

Format rounded_to(DType dtype) { return {dtype, {}, {}}; }

bool has_power_of_two_scales(const Format& format) {
    return format.policy.power_of_two || format.grid.dtype == DType::e8m0 ||
           format.policy.rule == numerics::ScaleRule::msamp;
}

} // namespace

void Linear::choose_formats() {
    high_precision_reason_ = recipe::reason_for_high_precision(
        recipe_.fp8, options_.in_features, options_.out_features, options_.is_first_or_last);
    const auto choose = [this](recipe::GemmRole role, recipe::Operand a, recipe::Operand b,
                               DType high_precision) {
        RoleFormats& chosen = formats_[static_cast<std::size_t>(role)];
        if (is_fp8() && recipe::is_fp8(recipe_.fp8, role)) {
            chosen = {recipe::operand_format(recipe_.fp8, role, a),
                      recipe::operand_format(recipe_.fp8, role, b)};
        } else {
            chosen = {rounded_to(high_precision), rounded_to(high_precision)};
        }
    };
    choose(recipe::GemmRole::fprop, recipe::Operand::input, recipe::Operand::weight, recipe_.fprop);
    choose(recipe::GemmRole::dgrad, recipe::Operand::grad_output, recipe::Operand::weight,
           recipe_.dgrad);
    choose(recipe::GemmRole::wgrad, recipe::Operand::grad_output, recipe::Operand::input,
           recipe_.wgrad);
}

Format Linear::format_of(recipe::Operand operand) const noexcept {
    switch (operand) {
    case recipe::Operand::input:
        return formats(recipe::GemmRole::fprop).a;
    case recipe::Operand::weight:
        return formats(recipe::GemmRole::fprop).b;
    case recipe::Operand::grad_output:
        break;
    }
    return formats(recipe::GemmRole::dgrad).a;
}

const Format& Linear::format_of(recipe::GemmRole role, recipe::Operand operand) const {
    const recipe::Operand b =
        role == recipe::GemmRole::wgrad ? recipe::Operand::input : recipe::Operand::weight;
    const recipe::Operand a =
        role == recipe::GemmRole::fprop ? recipe::Operand::input : recipe::Operand::grad_output;
    if (operand != a && operand != b) {
        fail(Code::invalid_argument, "linear: %s multiplies %s by %s; %s is none of them",
             recipe::role_name(role), recipe::operand_name(a), recipe::operand_name(b),
             recipe::operand_name(operand));
    }
    return operand == a ? formats(role).a : formats(role).b;
}

void Linear::check_codes(const Tensor& codes, const Format& format, const char* name) const {
    if (!has_format(codes, format)) {
        fail(Code::invalid_dtype, "linear: %s is %s; it must be %s (mp_linear_get_operand_format)",
             name, format_text(codes.format()).c_str(), format_text(format).c_str());
    }
    if (&codes.device() != &weight_->device()) {
        fail(Code::invalid_argument, "linear: %s is not on the layer's device", name);
    }
}

void Linear::quantize(Stream& stream, recipe::GemmRole role, recipe::Operand operand,
                      const Tensor& source, Tensor& codes) const {
    const Format& format = format_of(role, operand);
    if (!format.is_quantized()) {
        fail(Code::invalid_argument,
             "linear: %s takes %s rounded to %s, without scales; use mp_tensor_cast",
             recipe::role_name(role), recipe::operand_name(operand), dtype_name(format.dtype));
    }
    check_codes(codes, format, "codes");
    Sink how;
    how.tracking = track(operand);
    quant::quantize_tensor(stream, source, codes, nullptr, how);
}

void Linear::set_weight_codes(std::array<std::shared_ptr<Tensor>, 2> codes) {
    for (const recipe::GemmRole role : {recipe::GemmRole::fprop, recipe::GemmRole::dgrad}) {
        const Tensor* const tensor = codes[static_cast<std::size_t>(role)].get();
        if (tensor != nullptr) {
            check_codes(*tensor, formats(role).b, recipe::role_name(role));
            check_shape_is(*tensor, weight_->shape(), recipe::role_name(role));
        }
    }
    weight_codes_ = std::move(codes);
}

gemm::GemmPlan& Linear::plan(recipe::GemmRole role, int64_t rows, DType result, bool accumulate) {
    const PlanKey key(role, rows, result, accumulate);
    if (const auto found = plans_.find(key); found != plans_.end()) {
        return found->second;
    }
    GemmDesc d{};
    d.dtype_d = result;
    d.beta = accumulate ? 1.0F : 0.0F;
    switch (role) {
    case recipe::GemmRole::fprop: // y [rows, out] = x [rows, in] * w [out, in]^T + bias
        d.m = rows, d.n = options_.out_features, d.k = options_.in_features;
        d.trans_b = true;
        d.dtype_bias = bias_ != nullptr ? bias_->dtype() : DType::none;
        d.fast_accumulation = recipe_.fp8.fast_accumulation;
        break;
    case recipe::GemmRole::dgrad: // dx [rows, in] = dy [rows, out] * w [out, in]
        d.m = rows, d.n = options_.in_features, d.k = options_.out_features;
        break;
    case recipe::GemmRole::wgrad: // dw [out, in] = dy [rows, out]^T * x [rows, in]
        d.m = options_.out_features, d.n = options_.in_features, d.k = rows;
        d.trans_a = true;
        break;
    }
    const RoleFormats& chosen = formats(role);
    d.dtype_a = chosen.a.dtype;
    d.dtype_b = chosen.b.dtype;
    d.scale_a = chosen.a.grid;
    d.scale_b = chosen.b.grid;
    d.power_of_two_scales = has_power_of_two_scales(chosen.a) && has_power_of_two_scales(chosen.b);
    gemm::GemmPlan& made =
        plans_.emplace(key, gemm::GemmPlan(weight_->stream().shared_device(), d)).first->second;
    context_->log(LogLevel::debug, [&] {
        return std::string("linear: ") + recipe::role_name(role) + " with " + std::to_string(rows) +
               " rows: " + made.describe();
    });
    return made;
}

// A caller whose number of rows never repeats must not fill memory with plans.
void Linear::forget_old_plans() {
    constexpr std::size_t kMaxPlans = 64;
    if (plans_.size() > kMaxPlans) {
        plans_.clear();
    }
}

} // namespace mp::linear
