// SPDX-License-Identifier: Apache-2.0
// LayerPolicy: what a recipe says of one layer: what each operand of its products is rounded to, and how.
#pragma once

#include <array>
#include <string>

#include "numerics/rounding.hpp"
#include "recipe/recipe.hpp"

namespace mp::recipe {

struct LayerSizes {
    int64_t in_features = 0;
    int64_t out_features = 0;
    bool is_first_or_last = false; // of the whole model
    // Of a weight in blocks, which products decode and no recipe converts. none: any other.
    DType blocks = DType::none;
};

// How a product takes one of its operands.
struct OperandForm {
    Format format;
    numerics::Rounding rounding; // of codes; their seed and time are the layer's
};

class LayerPolicy {
  public:
    // By the rules that the name fits. Throws invalid_argument where they cannot be together, and for a layer without a name
    // whose random bits would follow from it.
    LayerPolicy(const Recipe& recipe, const std::string& name, const LayerSizes& sizes);

    // As it is for this layer.
    [[nodiscard]] const Recipe& recipe() const noexcept { return recipe_; }
    // The patterns of its rules that the name fits, with commas; empty where there are none.
    [[nodiscard]] const std::string& rules() const noexcept { return rules_; }
    // Throws where the product has no such operand.
    [[nodiscard]] const OperandForm& resolve(GemmRole role, Operand operand) const;
    // Its format in the product that takes it first.
    [[nodiscard]] const Format& first(Operand operand) const noexcept;
    [[nodiscard]] const Format& a(GemmRole role) const noexcept { return of(role).a.format; }
    [[nodiscard]] const Format& b(GemmRole role) const noexcept { return of(role).b.format; }
    // Whether any operand is.
    [[nodiscard]] bool rounds_stochastically() const noexcept;
    [[nodiscard]] bool is_fp8() const noexcept { return high_precision_reason_.empty(); }
    // Why it has no fp8 product; empty where it has.
    [[nodiscard]] const std::string& high_precision_reason() const noexcept {
        return high_precision_reason_;
    }
    // The same of a layer that the recipe means to have fp8 products; empty where none was asked for.
    [[nodiscard]] std::string fallback() const;

  private:
    struct Forms {
        OperandForm a;
        OperandForm b;
    };
    [[nodiscard]] const Forms& of(GemmRole role) const noexcept {
        return forms_[static_cast<std::size_t>(role)];
    }

    Recipe recipe_;
    std::string rules_;
    LayerSizes sizes_;
    std::string high_precision_reason_;
    std::array<Forms, 3> forms_; // by GemmRole
};

} // namespace mp::recipe
