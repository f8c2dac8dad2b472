// SPDX-License-Identifier: Apache-2.0
// The combinations that cannot work, each with its reason.
#include "recipe/recipe.hpp"
#include "status/status.hpp"

namespace mp {

std::vector<std::string> problems(const Recipe& r) {
    std::vector<std::string> found;
    const auto need = [&](bool holds, const char* text) {
        if (!holds) {
            found.emplace_back(text);
        }
    };
    need(r.master == DType::none || r.weight != DType::fp32,
         "master.dtype is fp32 beside fp32 weights: they are their own master; set master.dtype to "
         "none");
    need(r.compensation == DType::none || r.weight != DType::fp32,
         "optimizer.compensation.dtype is set for fp32 weights: Kahan compensates 16-bit weights "
         "only; set it to none");
    need(r.compensation == DType::none || r.master == DType::none,
         "optimizer.compensation.dtype and master.dtype are both set: a master weight loses "
         "nothing; choose one");
    need(r.compensation == DType::none || r.weight_rounding == Rounding::nearest,
         "optimizer.compensation.dtype with stochastic weights: the compensation removes the error "
         "that stochastic "
         "rounding would average out; choose one");
    need(r.weight_rounding == Rounding::nearest || r.weight != DType::fp32,
         "optimizer.weight.rounding is stochastic for fp32 weights: nothing is rounded; set it to "
         "nearest");
    need(r.weight_rounding == Rounding::nearest || r.master == DType::none,
         "optimizer.weight.rounding is stochastic beside master weights: set it to nearest");
    need(r.exp_avg_rounding == Rounding::nearest || r.exp_avg != DType::fp32,
         "optimizer.exp_avg.rounding is stochastic for an fp32 moment: nothing is rounded; set it "
         "to nearest");
    need(r.exp_avg_sq_rounding == Rounding::nearest || r.exp_avg_sq != DType::fp32,
         "optimizer.exp_avg_sq.rounding is stochastic for an fp32 moment: nothing is rounded; set "
         "it to nearest");
    const numerics::LossScaleRule& rule = r.scaler.rule;
    need(rule.max_scale == 0.0 || rule.max_scale >= rule.min_scale,
         "scaler.max_scale is below scaler.min_scale; raise it, or set it to 0 for none");
    need(r.scaler.init_scale >= rule.min_scale, "scaler.init_scale is below scaler.min_scale");
    need(rule.max_scale == 0.0 || r.scaler.init_scale <= rule.max_scale,
         "scaler.init_scale is above scaler.max_scale");
    return found;
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

} // namespace mp
