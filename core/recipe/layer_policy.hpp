// SPDX-License-Identifier: Apache-2.0
// LayerPolicy: what a recipe says of one layer: what each operand of its products is rounded to.
#pragma once

#include <array>
#include <string>

#include "recipe/recipe.hpp"

namespace mp::recipe {

struct LayerSizes {
    int64_t in_features = 0;
    int64_t out_features = 0;
    bool is_first_or_last = false; // of the whole model
};

// What a product multiplies, in its order.
struct ProductOperands {
    Operand a;
    Operand b;
};
ProductOperands operands_of(GemmRole role) noexcept;

class LayerPolicy {
  public:
    // By the rules that the name fits. Throws invalid_argument where they cannot be together.
    LayerPolicy(const Recipe& recipe, const std::string& name, const LayerSizes& sizes);

    // As it is for this layer.
    [[nodiscard]] const Recipe& recipe() const noexcept { return recipe_; }
    // The patterns of its rules that the name fits, with commas; empty where there are none.
    [[nodiscard]] const std::string& rules() const noexcept { return rules_; }
    // What the operand is in this product. All are rounded to nearest. Throws where the product has no such operand.
    [[nodiscard]] const Format& resolve(GemmRole role, Operand operand) const;
    // In the product that takes it first.
    [[nodiscard]] const Format& first(Operand operand) const noexcept;
    [[nodiscard]] const Format& a(GemmRole role) const noexcept { return of(role).a; }
    [[nodiscard]] const Format& b(GemmRole role) const noexcept { return of(role).b; }
    [[nodiscard]] bool is_fp8() const noexcept { return high_precision_reason_.empty(); }
    // Why it has no fp8 product; empty where it has.
    [[nodiscard]] const std::string& high_precision_reason() const noexcept {
        return high_precision_reason_;
    }
    // The same of a layer that the recipe means to have fp8 products; empty where none was asked for.
    [[nodiscard]] std::string fallback() const;

  private:
    struct Formats {
        Format a;
        Format b;
    };
    [[nodiscard]] const Formats& of(GemmRole role) const noexcept {
        return formats_[static_cast<std::size_t>(role)];
    }

    Recipe recipe_;
    std::string rules_;
    LayerSizes sizes_;
    std::string high_precision_reason_;
    std::array<Formats, 3> formats_; // by GemmRole
};

} // namespace mp::recipe
