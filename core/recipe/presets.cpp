// SPDX-License-Identifier: Apache-2.0
// The recipes that have a name: a row of kRows each.
#include <utility>

#include "recipe/nearest.hpp"
#include "recipe/recipe.hpp"
#include "status/status.hpp"

namespace mp::recipe {
namespace {

Recipe with_gemm(Recipe recipe, DType dtype) {
    recipe.fprop = dtype;
    recipe.dgrad = dtype;
    recipe.wgrad = dtype;
    return recipe;
}

Recipe fp16_mixed() {
    Recipe recipe = with_gemm({}, DType::fp16);
    recipe.weight = FormatId::fp16;
    recipe.master = FormatId::fp32;
    recipe.weight_gather = DType::fp16;
    recipe.scaler.kind = ScalerKind::dynamic;
    return recipe;
}

// Transformer Engine issue 950 names the three ways to mix bf16 and fp32; this is its first.
Recipe bf16_mixed() {
    Recipe recipe = with_gemm({}, DType::bf16);
    recipe.weight_gather = DType::bf16;
    return recipe;
}

Recipe bf16_mixed_dual() {
    Recipe recipe = bf16_mixed();
    recipe.weight = FormatId::bf16;
    recipe.master = FormatId::fp32;
    return recipe;
}

Recipe bf16_pure() {
    Recipe recipe = with_gemm({}, DType::bf16);
    recipe.weight = FormatId::bf16;
    recipe.grad = FormatId::bf16;
    recipe.grad_reduce = DType::fp32;
    recipe.weight_gather = DType::bf16;
    for (StatePolicy& state : recipe.states) {
        state.format = FormatId::bf16;
    }
    return recipe;
}

Recipe bf16_pure_kahan() {
    Recipe recipe = bf16_pure();
    recipe.compensation = FormatId::bf16;
    return recipe;
}

Recipe bf16_pure_sr() {
    Recipe recipe = bf16_pure();
    recipe.weight_rounding = RoundingMode::stochastic;
    recipe.state(numerics::StateId::exp_avg_sq).rounding = RoundingMode::stochastic;
    return recipe;
}

// The states of bf16_mixed, with the fp32 weights kept as bf16 weights and remainders.
Recipe bf16_pure_remainder() {
    Recipe recipe = bf16_mixed();
    recipe.weight = FormatId::bf16;
    recipe.master = FormatId::remainder16;
    return recipe;
}

Recipe bf16_mixed_fp32_compute() {
    Recipe recipe;
    recipe.weight_gather = DType::bf16;
    return recipe;
}

// Transformer Engine's recipe over fp32 weights: what is not an fp8 product is bf16_mixed.
Recipe fp8_delayed() {
    Recipe recipe = bf16_mixed();
    recipe.fp8.scaling = Fp8Scaling::delayed;
    return recipe;
}

Recipe with_delayed_fp8(Recipe recipe) {
    recipe.fp8 = fp8_delayed().fp8;
    return recipe;
}

// NeMo's and Megatron Core's names: the same products inside bf16 or fp16 mixed precision, and parameters that the
// distributed optimizer gathers as fp8 (fp8_params, later fp8_param_gather).
Recipe with_fp8_params(Recipe recipe) {
    recipe = with_delayed_fp8(recipe);
    recipe.fp8.gather = true;
    return recipe;
}

// Torch's automatic mixed precision, the row "FP16 AMP" of MS-AMP's table: fp32 weights that each product casts.
Recipe fp16_amp() {
    Recipe recipe = with_gemm({}, DType::fp16);
    recipe.scaler.kind = ScalerKind::dynamic;
    return recipe;
}

// torchdistx's AnyPrecisionAdamW as it is when nothing is said: its momentum_dtype, variance_dtype and no Kahan summation,
// for a model in bf16.
Recipe bf16_any_precision() {
    Recipe recipe = bf16_pure();
    recipe.state(numerics::StateId::exp_avg).format = FormatId::fp32;
    return recipe;
}

Recipe fp8_current() {
    Recipe recipe = bf16_mixed();
    recipe.fp8.scaling = Fp8Scaling::tensorwise;
    return recipe;
}

// A model that is used, not trained: only its forward products, in fp8.
Recipe fp8_inference() {
    Recipe recipe = fp8_current();
    recipe.weight = FormatId::bf16;
    recipe.fp8.dgrad = false;
    recipe.fp8.wgrad = false;
    return recipe;
}

Recipe fp8_rowwise(Fp8Scaling scaling) {
    Recipe recipe = bf16_mixed();
    recipe.fp8.scaling = scaling;
    recipe.fp8.format = Fp8Format::e4m3;
    recipe.fp8.rule = numerics::ScaleRule::float64;
    recipe.fp8.power_of_two = true;
    return recipe;
}

Recipe fp8_block() {
    Recipe recipe = bf16_mixed();
    recipe.fp8.scaling = Fp8Scaling::block;
    recipe.fp8.format = Fp8Format::e4m3;
    recipe.fp8.rule = numerics::ScaleRule::deepseek;
    recipe.fp8.power_of_two = true;
    recipe.fp8.fast_accumulation = false;
    return recipe;
}

Recipe mxfp8() {
    Recipe recipe = bf16_mixed();
    recipe.fp8.scaling = Fp8Scaling::mx;
    recipe.fp8.format = Fp8Format::e4m3;
    recipe.fp8.rule = numerics::ScaleRule::mx_rceil;
    recipe.fp8.multiple_of = 32;
    recipe.fp8.fast_accumulation = false;
    return recipe;
}

// MS-AMP's levels (linear weights; other parameters keep their own type). Products scaled by its window of 16
// steps, in which a tensor's first 16 use its own amax.
Recipe msamp_o1() {
    Recipe recipe = with_gemm({}, DType::fp16);
    recipe.weight = FormatId::fp16_scaled;
    recipe.grad = FormatId::e4m3_scaled;
    recipe.grad_reduce = DType::fp8_e4m3;
    recipe.weight_gather = DType::fp16;
    recipe.scaler.kind = ScalerKind::dynamic;
    recipe.fp8.scaling = Fp8Scaling::delayed;
    recipe.fp8.rule = numerics::ScaleRule::msamp;
    recipe.fp8.amax_history_len = 16;
    recipe.fp8.warm_up = 16;
    return recipe;
}

Recipe msamp_o2() {
    Recipe recipe = msamp_o1();
    for (int k = 0; k < numerics::kStateIdCount; ++k) {
        recipe.states[k].format =
            numerics::kStateSpecs[k].is_signed ? FormatId::e4m3_scaled : FormatId::fp16_scaled;
    }
    return recipe;
}

Recipe msamp_o3() {
    Recipe recipe = msamp_o2();
    recipe.weight = FormatId::e4m3_scaled;
    recipe.master = FormatId::fp16_scaled;
    return recipe;
}

// What each is called, what it is, and what makes it.
struct Row {
    const char* name;
    const char* text;
    Recipe (*make)();
};
constexpr Row kRows[] = {
    {"fp32", "everything in fp32: the baseline", [] { return Recipe{}; }},
    {"fp16_mixed", "fp16 weights and GEMMs, fp32 master weights and states, dynamic loss scale",
     fp16_mixed},
    {"fp16_amp", "fp32 weights cast to fp16 for each product, dynamic loss scale (torch AMP)",
     fp16_amp},
    {"bf16_mixed", "fp32 weights cast to bf16 for each use in a GEMM, fp32 gradients and states",
     bf16_mixed},
    {"bf16_mixed_dual", "bf16 weights beside fp32 master weights, fp32 gradients and states",
     bf16_mixed_dual},
    {"bf16_mixed_fp32_compute", "fp32 weights and GEMMs; bf16 only where sharding gathers weights",
     bf16_mixed_fp32_compute},
    {"bf16_with_fp8_mixed",
     "bf16_mixed_dual with delayed fp8 products and fp8 parameter gather (NeMo, Megatron Core)",
     [] { return with_fp8_params(bf16_mixed_dual()); }},
    {"fp16_with_fp8_mixed",
     "fp16_mixed with delayed fp8 products and fp8 parameter gather (NeMo, Megatron Core)",
     [] { return with_fp8_params(fp16_mixed()); }},
    {"fp8_delayed",
     "fp8 products scaled by earlier steps' amaxes, over fp32 weights (Transformer Engine)",
     fp8_delayed},
    {"fp8_current", "fp8 products, each tensor scaled by its own amax", fp8_current},
    {"fp8_inference", "bf16 weights, forward products in fp8 by their own amaxes", fp8_inference},
    {"fp8_rowwise", "fp8 products with a power-of-two scale for each row (torchao)",
     [] { return fp8_rowwise(Fp8Scaling::rowwise); }},
    {"fp8_rowwise_gw_hp", "fp8_rowwise with the weight gradient in bf16 (torchao)",
     [] { return fp8_rowwise(Fp8Scaling::rowwise_gw_hp); }},
    {"fp8_block", "fp8 products with scales of 1x128 and 128x128 (DeepSeek-V3)", fp8_block},
    {"mxfp8", "fp8 products with e8m0 scales of 32 elements (OCP microscaling)", mxfp8},
    {"msamp_o1", "MS-AMP O1: fp8 products and gradients, scaled fp16 weights, fp32 moments",
     msamp_o1},
    {"msamp_o2", "MS-AMP O2: O1 with scaled fp8 and fp16 moments", msamp_o2},
    {"msamp_o3", "MS-AMP O3: O2 with scaled fp8 weights beside scaled fp16 masters", msamp_o3},
    {"msamp_o1_fp8_delayed", "msamp_o1 with fp8_delayed's products",
     [] { return with_delayed_fp8(msamp_o1()); }},
    {"msamp_o2_fp8_delayed", "msamp_o2 with fp8_delayed's products",
     [] { return with_delayed_fp8(msamp_o2()); }},
    {"msamp_o3_fp8_delayed", "msamp_o3 with fp8_delayed's products",
     [] { return with_delayed_fp8(msamp_o3()); }},
    {"bf16_pure", "bf16 weights, gradients and states, rounded to nearest", bf16_pure},
    {"bf16_full", "bf16 weights and products, for evaluation; to train, bf16_pure", bf16_pure},
    {"bf16_any_precision",
     "bf16 weights and second moments, fp32 first moments (torchdistx's defaults)",
     bf16_any_precision},
    {"bf16_pure_kahan", "bf16_pure with a bf16 Kahan compensation buffer (AnyPrecisionAdamW)",
     bf16_pure_kahan},
    {"bf16_pure_remainder",
     "bf16 weights and the 16 bits they lack of fp32 ones, fp32 gradients and states",
     bf16_pure_remainder},
    {"bf16_pure_sr", "bf16_pure with stochastic rounding of weights and second moments",
     bf16_pure_sr},
};

} // namespace

const std::vector<Preset>& presets() {
    static const std::vector<Preset> list = [] {
        std::vector<Preset> presets;
        for (const Row& row : kRows) {
            Recipe recipe = row.make();
            recipe.scaler.rule.is_dynamic = recipe.scaler.kind == ScalerKind::dynamic ? 1 : 0;
            presets.push_back({row.name, row.text, std::move(recipe)});
        }
        return presets;
    }();
    return list;
}

const Preset& find_preset(const std::string& name) {
    std::vector<std::string> names;
    for (const Preset& preset : presets()) {
        if (name == preset.name) {
            return preset;
        }
        names.emplace_back(preset.name);
    }
    fail(Code::unknown_name, "there is no recipe '%.64s'; nearest: %s", name.c_str(),
         nearest_names(name, names).c_str());
}

} // namespace mp::recipe
