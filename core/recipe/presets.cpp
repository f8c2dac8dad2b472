// SPDX-License-Identifier: Apache-2.0
#include "recipe/nearest.hpp"
#include "recipe/recipe.hpp"
#include "status/status.hpp"

namespace mp {
namespace {

Recipe with_gemm(Recipe recipe, DType dtype) {
    recipe.fprop = dtype;
    recipe.dgrad = dtype;
    recipe.wgrad = dtype;
    return recipe;
}

Recipe fp16_mixed() {
    Recipe recipe = with_gemm({}, DType::fp16);
    recipe.weight = DType::fp16;
    recipe.master = DType::fp32;
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
    recipe.weight = DType::bf16;
    recipe.master = DType::fp32;
    return recipe;
}

Recipe bf16_pure() {
    Recipe recipe = with_gemm({}, DType::bf16);
    recipe.weight = DType::bf16;
    recipe.grad = DType::bf16;
    recipe.grad_reduce = DType::fp32;
    recipe.weight_gather = DType::bf16;
    recipe.exp_avg = DType::bf16;
    recipe.exp_avg_sq = DType::bf16;
    return recipe;
}

Recipe bf16_pure_kahan() {
    Recipe recipe = bf16_pure();
    recipe.compensation = DType::bf16;
    return recipe;
}

Recipe bf16_pure_sr() {
    Recipe recipe = bf16_pure();
    recipe.weight_rounding = Rounding::stochastic;
    recipe.exp_avg_sq_rounding = Rounding::stochastic;
    return recipe;
}

Recipe bf16_mixed_fp32_compute() {
    Recipe recipe;
    recipe.weight_gather = DType::bf16;
    return recipe;
}

} // namespace

const std::vector<Preset>& presets() {
    static const std::vector<Preset> list = [] {
        std::vector<Preset> presets = {
            {"fp32", "everything in fp32: the baseline", Recipe{}},
            {"fp16_mixed",
             "fp16 weights and GEMMs, fp32 master weights and states, dynamic loss scale",
             fp16_mixed()},
            {"bf16_mixed",
             "fp32 weights cast to bf16 for each use in a GEMM, fp32 gradients and states",
             bf16_mixed()},
            {"bf16_mixed_dual",
             "bf16 weights beside fp32 master weights, fp32 gradients and states",
             bf16_mixed_dual()},
            {"bf16_mixed_fp32_compute",
             "fp32 weights and GEMMs; bf16 only where sharding gathers weights",
             bf16_mixed_fp32_compute()},
            {"bf16_pure", "bf16 weights, gradients and states, rounded to nearest", bf16_pure()},
            {"bf16_pure_kahan",
             "bf16_pure with a bf16 Kahan compensation buffer (AnyPrecisionAdamW)",
             bf16_pure_kahan()},
            {"bf16_pure_sr", "bf16_pure with stochastic rounding of weights and second moments",
             bf16_pure_sr()},
        };
        for (Preset& preset : presets) {
            preset.recipe.scaler.rule.is_dynamic =
                preset.recipe.scaler.kind == ScalerKind::dynamic ? 1 : 0;
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

} // namespace mp
