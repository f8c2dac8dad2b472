// SPDX-License-Identifier: Apache-2.0
// Recipe: the numeric policy as one plain struct; its keys, presets, JSON form and rules are beside it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dtype/format_id.hpp"
#include "numerics/loss_scale.hpp"
#include "numerics/rules/rule.hpp"
#include "recipe/fp8_policy.hpp"
#include "recipe/rounding_mode.hpp"

namespace mp::recipe {

// The numbers of MP_SCALER_*.
enum class ScalerKind : int32_t { dynamic = 0, fixed = 1, none = 2 };

// Of fp8 gradients between ranks. shared: one for a gradient, which all ranks agree on, with the factor mu (FP8-LM); block:
// fp32 for 128 elements; mx: E8M0 for 32.
enum class ReduceScale : int32_t { shared = 0, block = 1, mx = 2 };

struct ScalerPolicy {
    ScalerKind kind = ScalerKind::none;
    double init_scale = 65536.0;
    numerics::LossScaleRule rule;
};

// Of one of the states that rules keep.
struct StatePolicy {
    FormatId format = FormatId::fp32;
    RoundingMode rounding = RoundingMode::nearest;
};

// A rule for some layers and parameters, by their names.
struct LayerRule {
    std::vector<std::string> patterns; // * stands for any characters, ? for one
    // Names and texts, in order. "recipe" is a preset: all that it says of a layer.
    std::vector<std::pair<std::string, std::string>> values;
};

// The key "layers": ordered rules "patterns: key=value, key=value; ...", read once, as they are set.
class LayerRules {
  public:
    LayerRules() = default; // none
    // Patterns alone are a rule with gemm.scaling none. Throws invalid_argument or unknown_name, naming the rule.
    explicit LayerRules(std::string text);

    [[nodiscard]] bool empty() const noexcept { return list().empty(); }
    [[nodiscard]] const std::string& text() const noexcept { return text_; }
    [[nodiscard]] std::span<const LayerRule> list() const noexcept {
        return rules_ != nullptr ? std::span<const LayerRule>(*rules_)
                                 : std::span<const LayerRule>();
    }

  private:
    std::string text_;
    std::shared_ptr<const std::vector<LayerRule>> rules_; // of all copies
};

struct Recipe {
    DType fprop = DType::fp32; // GEMM operands, by role, where they are not fp8
    DType dgrad = DType::fp32;
    DType wgrad = DType::fp32;
    FormatId weight = FormatId::fp32;
    FormatId master = FormatId::none;
    FormatId grad = FormatId::fp32;
    DType grad_reduce = DType::fp32;
    ReduceScale grad_reduce_scale = ReduceScale::shared; // where that is fp8
    DType weight_gather = DType::fp32;
    StatePolicy states[numerics::kStateIdCount]; // by StateId
    FormatId compensation = FormatId::none;
    int64_t block_min_elements =
        kSmallestBlockTensor; // smaller tensors keep fp32 states instead of blocks
    RoundingMode weight_rounding = RoundingMode::nearest;
    Fp8Policy fp8;
    ScalerPolicy scaler;
    LayerRules layers; // what they say of a name: layer_rules.hpp

    [[nodiscard]] StatePolicy& state(numerics::StateId id) {
        return states[static_cast<std::size_t>(id)];
    }
    [[nodiscard]] const StatePolicy& state(numerics::StateId id) const {
        return states[static_cast<std::size_t>(id)];
    }
};

// A bf16 second moment rounded to nearest cannot decrease when 1 - beta2 is below half an ulp (2^-9).
inline constexpr double kLargestBeta2ForNearestBf16 = 1.0 - 1.0 / 512.0;

struct Preset {
    const char* name;
    const char* text;
    Recipe recipe;
};

const std::vector<Preset>& presets();
// Throws unknown_name with the nearest names.
const Preset& find_preset(const std::string& name);

// Why products round nothing to codes of the operand; null where they do.
const char* reason_for_no_rounding(const Recipe& recipe, Operand operand) noexcept;
// Everything wrong with the combination, one sentence each; empty if nothing is.
std::vector<std::string> problems(const Recipe& recipe);
// Throws invalid_argument with all problems.
void check_recipe(const Recipe& recipe);
// What can be computed but seldom trains well; null where there is nothing.
const char* recipe_warning(const Recipe& recipe) noexcept;

std::string recipe_to_json(const Recipe& recipe, const std::string& name);
// For people: the nearest preset, and the keys that differ from it: "bf16_mixed", "bf16_pure, grad.dtype fp32".
std::string recipe_title(const Recipe& recipe);

} // namespace mp::recipe
