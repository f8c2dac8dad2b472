// SPDX-License-Identifier: Apache-2.0
// The combinations that cannot work, each with its reason.
#include "recipe/recipe.hpp"
#include "status/status.hpp"

namespace mp::recipe {

namespace {

using numerics::ScaleRule;

class Findings {
  public:
    void need(bool holds, const char* text) {
        if (!holds) {
            list.emplace_back(text);
        }
    }
    std::vector<std::string> list;
};

void find_fp8_problems(const Fp8Policy& p, Findings& found) {
    if (!p.is_used()) {
        found.need(!p.gather, "fp8.all_gather is on but fp8.scaling is none: there are no codes to "
                              "gather; set it to off");
        return;
    }
    const bool one_scale = p.scaling == Fp8Scaling::delayed || p.scaling == Fp8Scaling::tensorwise;
    found.need(p.fprop || p.dgrad || p.wgrad,
               "fp8.fprop, fp8.dgrad and fp8.wgrad are all off: no product is fp8; set fp8.scaling "
               "to none");
    found.need(p.format != Fp8Format::e5m2,
               "fp8.format is e5m2: with two bits of mantissa for weights and inputs models do not "
               "train (Transformer Engine refuses it, too); set it to hybrid or e4m3");
    found.need(p.scaling != Fp8Scaling::mx || numerics::is_mx(p.rule),
               "fp8.scaling is mx but fp8.scale_rule is none of mx_rceil, mx_floor, mx_ceil, "
               "mx_even: e8m0 scales need one of them");
    found.need(p.scaling == Fp8Scaling::mx || !numerics::is_mx(p.rule),
               "fp8.scale_rule is an mx rule but fp8.scaling is not mx: e8m0 scales belong to "
               "blocks of 32");
    found.need(p.rule != ScaleRule::msamp || one_scale,
               "fp8.scale_rule is msamp, which has one scale for a tensor; set fp8.scaling to "
               "delayed or tensorwise");
    found.need(p.rule != ScaleRule::deepseek || p.scaling != Fp8Scaling::delayed,
               "fp8.scale_rule is deepseek, which scales by a block's own amax, but fp8.scaling is "
               "delayed; set the rule to current");
    found.need(!p.power_of_two || (!numerics::is_mx(p.rule) && p.rule != ScaleRule::msamp),
               "fp8.power_of_two_scale is on for a rule whose scales are powers of two anyway; set "
               "it to off");
    found.need(p.amax_epsilon == 0.0 || (!numerics::is_mx(p.rule) && p.rule != ScaleRule::msamp),
               "fp8.amax_epsilon is set for a rule that has none (mx, msamp); set it to 0");
    found.need(p.margin == 0 || !numerics::is_mx(p.rule),
               "fp8.margin is set for an mx rule, which fixes the exponent; set it to 0");
    found.need(
        p.scaling == Fp8Scaling::delayed || p.interval == 1,
        "fp8.interval is set but fp8.scaling is not delayed: other scales are made anew each "
        "time; set it to 1");
    found.need(!p.gather || one_scale,
               "fp8.all_gather needs one scale for a weight: its rows and blocks would be cut "
               "between ranks; set fp8.scaling to delayed or tensorwise");
}

void find_weight_rounding_problems(const Recipe& r, Findings& found) {
    const bool is_stochastic = r.weight_rounding == RoundingMode::stochastic;
    found.need(
        !is_stochastic || r.weight != DType::fp32,
        "optimizer.weight.rounding is stochastic for fp32 weights: nothing is rounded; set it "
        "to nearest");
    found.need(!is_stochastic || r.master == DType::none,
               "optimizer.weight.rounding is stochastic beside master weights: set it to nearest");
    const bool has_fp32_master = r.master == DType::fp32 || r.master.coding == Coding::remainder;
    found.need(
        r.weight_rounding != RoundingMode::nearest_away ||
            (r.weight == DType::bf16 && has_fp32_master),
        "optimizer.weight.rounding is nearest_away, which is for bf16 weights made from fp32 "
        "masters: set weight.dtype to bf16 and master.dtype to fp32 or remainder16, or the "
        "rounding to nearest");
}

void find_scaled_state_problems(const Recipe& r, Findings& found) {
    found.need(r.exp_avg_sq != StateFormat(DType::fp8_e4m3, Coding::scaled),
               "optimizer.exp_avg_sq.dtype is fp8_e4m3_scaled: under one scale fp8 holds second "
               "moments with a ratio of at most 2.3e5, that is gradients with a ratio of 479; "
               "smaller ones become 0 and the next step of their parameter is thousands of times "
               "too large; use fp16_scaled or fp8_e4m3_block256");
    found.need(
        r.master.coding != Coding::remainder || r.weight == DType::bf16,
        "master.dtype is remainder16, the 16 bits that a bf16 weight lacks of an fp32 one, but "
        "weight.dtype is not bf16; set it to bf16, or master.dtype to fp32");
    found.need(r.exp_avg_rounding == RoundingMode::nearest || !r.exp_avg.is_map(),
               "optimizer.exp_avg.rounding is stochastic for codes of a map (int8 and "
               "int4), which are rounded to nearest only; set it to nearest");
    found.need(r.exp_avg_sq_rounding == RoundingMode::nearest || !r.exp_avg_sq.is_map(),
               "optimizer.exp_avg_sq.rounding is stochastic for codes of a map (int8 and "
               "int4), which are rounded to nearest only; set it to nearest");
    found.need(!r.weight.is_scaled() || r.compensation == DType::none,
               "optimizer.compensation.dtype is set for scaled weights: Kahan compensates weights "
               "without a scale; set it to none");
    found.need(r.weight != StateFormat(DType::fp8_e4m3, Coding::scaled) || r.master.exists() ||
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

std::vector<std::string> problems(const Recipe& r) {
    Findings found;
    const auto need = [&](bool holds, const char* text) { found.need(holds, text); };
    find_fp8_problems(r.fp8, found);
    find_scaled_state_problems(r, found);
    find_weight_rounding_problems(r, found);
    find_reduce_problems(r, found);
    need(r.master == DType::none || r.weight != DType::fp32,
         "master.dtype is set beside fp32 weights: they are their own master; set master.dtype to "
         "none");
    need(r.compensation == DType::none || r.weight != DType::fp32,
         "optimizer.compensation.dtype is set for fp32 weights: Kahan compensates 16-bit weights "
         "only; set it to none");
    need(r.compensation == DType::none || r.master == DType::none,
         "optimizer.compensation.dtype and master.dtype are both set: a master weight loses "
         "nothing; choose one");
    need(r.compensation == DType::none || r.weight_rounding != RoundingMode::stochastic,
         "optimizer.compensation.dtype with stochastic weights: the compensation removes the error "
         "that stochastic "
         "rounding would average out; choose one");
    need(r.exp_avg_rounding == RoundingMode::nearest || r.exp_avg != DType::fp32,
         "optimizer.exp_avg.rounding is stochastic for an fp32 moment: nothing is rounded; set it "
         "to nearest");
    need(r.exp_avg_sq_rounding == RoundingMode::nearest || r.exp_avg_sq != DType::fp32,
         "optimizer.exp_avg_sq.rounding is stochastic for an fp32 moment: nothing is rounded; set "
         "it to nearest");
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
    if (recipe.exp_avg_sq == DType::bf16 && recipe.exp_avg_sq_rounding == RoundingMode::nearest) {
        return "recipe: bf16 second moments rounded to nearest never decrease at beta2 above "
               "0.998; use a smaller beta2, or set optimizer.exp_avg_sq.rounding to stochastic";
    }
    if (recipe.exp_avg_sq == DType::fp16) {
        return "recipe: fp16 second moments underflow for gradients below 2.4e-4 and are infinite "
               "for those above 256, whose weights then stay; use bf16 or fp32, or fp16_scaled";
    }
    if (recipe.compensation == DType::fp16) {
        return "recipe: fp16 compensations end at 6e-8: smaller updates are lost, among them all "
               "weight decay of weights near 1e-4; use bf16";
    }
    return nullptr;
}

} // namespace mp::recipe
