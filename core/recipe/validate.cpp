// SPDX-License-Identifier: Apache-2.0
// The combinations that cannot work, each with its reason.
#include "device/step_conditions.hpp"
#include "recipe/recipe.hpp"
#include "status/status.hpp"

namespace mp::recipe {

namespace {

using numerics::ScaleRule;

class Findings {
  public:
    void need(bool holds, std::string text) {
        if (!holds) {
            list.push_back(std::move(text));
        }
    }
    std::vector<std::string> list;
};

void find_fp8_problems(const Fp8Policy& p, Findings& found) {
    if (!p.is_used()) {
        found.need(!p.gather,
                   "weight.gather.codes is on but gemm.scaling is none: there are no codes to "
                   "gather; set it to off");
        return;
    }
    const bool one_scale = has_one_scale(p);
    found.need(p.fprop || p.dgrad || p.wgrad,
               "gemm.fprop.quantized, gemm.dgrad.quantized and gemm.wgrad.quantized are all off: "
               "no product is fp8; set gemm.scaling "
               "to none");
    found.need(p.format != Fp8Format::e5m2,
               "fp8.format is e5m2: with two bits of mantissa for weights and inputs models do not "
               "train (Transformer Engine refuses it, too); set it to hybrid or e4m3");
    found.need(p.scaling != Fp8Scaling::mx || numerics::is_mx(p.rule),
               "gemm.scaling is mx but gemm.scale_rule is none of mx_rceil, mx_floor, mx_ceil, "
               "mx_even: e8m0 scales need one of them");
    found.need(p.scaling == Fp8Scaling::mx || !numerics::is_mx(p.rule),
               "gemm.scale_rule is an mx rule but gemm.scaling is not mx: e8m0 scales belong to "
               "blocks of 32");
    found.need(p.rule != ScaleRule::msamp || one_scale,
               "gemm.scale_rule is msamp, which has one scale for a tensor; set gemm.scaling to "
               "delayed or tensorwise");
    found.need(
        p.rule != ScaleRule::deepseek || p.scaling != Fp8Scaling::delayed,
        "gemm.scale_rule is deepseek, which scales by a block's own amax, but gemm.scaling is "
        "delayed; set the rule to current");
    found.need(
        !p.power_of_two || (!numerics::is_mx(p.rule) && p.rule != ScaleRule::msamp),
        "gemm.power_of_two_scale is on for a rule whose scales are powers of two anyway; set "
        "it to off");
    found.need(p.amax_epsilon == 0.0 || (!numerics::is_mx(p.rule) && p.rule != ScaleRule::msamp),
               "gemm.amax_epsilon is set for a rule that has none (mx, msamp); set it to 0");
    found.need(p.margin == 0 || !numerics::is_mx(p.rule),
               "gemm.margin is set for an mx rule, which fixes the exponent; set it to 0");
    found.need(
        p.scaling == Fp8Scaling::delayed || p.interval == 1,
        "gemm.interval is set but gemm.scaling is not delayed: other scales are made anew each "
        "time; set it to 1");
    found.need(!p.gather || one_scale,
               "weight.gather.codes needs one scale for a weight: its rows and blocks would be cut "
               "between ranks; set gemm.scaling to delayed or tensorwise");
}

void find_operand_rounding_problems(const Recipe& r, Findings& found) {
    for (const Operand operand : {Operand::input, Operand::weight, Operand::grad_output}) {
        const char* const reason = reason_for_no_rounding(r, operand);
        found.need(!r.fp8.rounds_stochastically(operand) || reason == nullptr,
                   std::string("gemm.") + operand_name(operand) + ".rounding is stochastic, but " +
                       (reason != nullptr ? reason : "") + "; set it to nearest");
    }
}

void find_weight_rounding_problems(const Recipe& r, Findings& found) {
    const bool is_stochastic = r.weight_rounding == RoundingMode::stochastic;
    found.need(
        !is_stochastic || r.weight != FormatId::fp32,
        "optimizer.weight.rounding is stochastic for fp32 weights: nothing is rounded; set it "
        "to nearest");
    found.need(!is_stochastic || r.master == FormatId::none,
               "optimizer.weight.rounding is stochastic beside master weights: set it to nearest");
}

// What no step can be made of.
void find_layout_problems(const Recipe& r, Findings& found) {
    StepLayout layout;
    layout.param = r.weight;
    layout.master = r.master;
    layout.compensation = r.compensation;
    layout.half_away = r.weight_rounding == RoundingMode::nearest_away;
    layout.stochastic_param = r.weight_rounding == RoundingMode::stochastic;
    all_of(kLayoutConditions, [&](const auto& condition) {
        found.need(condition.holds(layout), std::string(condition.keys) + ": " + condition.reason);
        return true;
    });
}

void find_state_problems(const numerics::StateSpec& spec, const StatePolicy& state,
                         Findings& found) {
    const std::string key = std::string("optimizer.") + spec.name;
    const bool is_stochastic = state.rounding != RoundingMode::nearest;
    all_of(kStateConditions, [&](const auto& condition) {
        found.need(condition.holds(state.format, spec.is_signed, is_stochastic),
                   key + " " + condition.reason);
        return true;
    });
    found.need(!is_stochastic || state.format != FormatId::fp32,
               key + ".rounding is stochastic for an fp32 " + spec.text +
                   ": nothing is rounded; set it to nearest");
}

void find_scaled_problems(const Recipe& r, Findings& found) {
    found.need(r.weight != FormatId::e4m3_scaled || r.master != FormatId::none ||
                   r.weight_rounding == RoundingMode::stochastic,
               "weight.dtype is fp8_e4m3_scaled without a master weight: updates below a 16th of a "
               "weight would be lost; set master.dtype to fp16_scaled or fp32, or "
               "optimizer.weight.rounding to stochastic");
}

void find_reduce_problems(const Recipe& r, Findings& found) {
    const bool is_fp8 = mp::is_fp8(r.grad_reduce);
    found.need(is_fp8 || r.grad_reduce_scale == ReduceScale::shared,
               "grad.reduce.scale is set but grad.reduce.dtype is not fp8: other types have no "
               "scale; set it to shared");
    found.need(r.grad_reduce != DType::fp8_e5m2 || r.grad_reduce_scale != ReduceScale::shared,
               "grad.reduce.dtype is fp8_e5m2 with one shared scale, which is for fp8_e4m3; set "
               "grad.reduce.scale to block or mx");
}

} // namespace

const char* reason_for_no_rounding(const Recipe& r, Operand operand) noexcept {
    if (!has_codes(r.fp8, operand)) {
        return "no product takes codes of it (gemm.scaling, gemm.*.quantized)";
    }
    const bool is_codes_itself =
        r.fp8.gather || (r.weight == FormatId::e4m3_scaled && has_one_scale(r.fp8));
    return operand == Operand::weight && is_codes_itself
               ? "products take weights that are codes as they are (weight.gather.codes, "
                 "weight.dtype)"
               : nullptr;
}

std::vector<std::string> problems(const Recipe& r) {
    Findings found;
    const auto need = [&](bool holds, const char* text) { found.need(holds, text); };
    find_fp8_problems(r.fp8, found);
    find_operand_rounding_problems(r, found);
    for (int k = 0; k < numerics::kStateIdCount; ++k) {
        find_state_problems(numerics::kStateSpecs[k], r.states[k], found);
    }
    find_layout_problems(r, found);
    find_scaled_problems(r, found);
    find_weight_rounding_problems(r, found);
    find_reduce_problems(r, found);
    need(r.master == FormatId::none || r.weight != FormatId::fp32,
         "master.dtype is set beside fp32 weights: they are their own master; set master.dtype to "
         "none");
    need(r.compensation == FormatId::none || r.weight != FormatId::fp32,
         "optimizer.compensation.dtype is set for fp32 weights: Kahan compensates 16-bit weights "
         "only; set it to none");
    need(r.compensation == FormatId::none || r.weight_rounding != RoundingMode::stochastic,
         "optimizer.compensation.dtype with stochastic weights: the compensation removes the error "
         "that stochastic "
         "rounding would average out; choose one");
    const numerics::LossScaleRule& rule = r.scaler.rule;
    need(rule.max_scale == 0.0 || rule.max_scale >= rule.min_scale,
         "scaler.max_scale is below scaler.min_scale; raise it, or set it to 0 for none");
    need(r.scaler.init_scale >= rule.min_scale, "scaler.init_scale is below scaler.min_scale");
    need(rule.max_scale == 0.0 || r.scaler.init_scale <= rule.max_scale,
         "scaler.init_scale is above scaler.max_scale");
    return std::move(found.list);
}

void check_recipe(const Recipe& recipe) {
    std::string text;
    for (const std::string& problem : problems(recipe)) {
        text += (text.empty() ? "" : "; ") + problem;
    }
    if (!text.empty()) {
        fail(Code::invalid_argument, "recipe: %s", text.c_str());
    }
}

const char* recipe_warning(const Recipe& recipe) noexcept {
    const StatePolicy& second = recipe.state(numerics::StateId::exp_avg_sq);
    if (second.format == FormatId::bf16 && second.rounding == RoundingMode::nearest) {
        return "recipe: bf16 second moments rounded to nearest never decrease at beta2 above "
               "0.998; use a smaller beta2, or set optimizer.exp_avg_sq.rounding to stochastic";
    }
    if (second.format == FormatId::fp16) {
        return "recipe: fp16 second moments underflow for gradients below 2.4e-4 and are infinite "
               "for those above 256, whose weights then stay; use bf16 or fp32, or fp16_scaled";
    }
    if (recipe.compensation == FormatId::fp16) {
        return "recipe: fp16 compensations end at 6e-8: smaller updates are lost, among them all "
               "weight decay of weights near 1e-4; use bf16";
    }
    return nullptr;
}

} // namespace mp::recipe
