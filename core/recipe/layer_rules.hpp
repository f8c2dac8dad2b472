// SPDX-License-Identifier: Apache-2.0
// The key "layers": policy by the names of layers and parameters, as ordered rules "patterns: key=value, key=value; ...".
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "recipe/recipe.hpp"

namespace mp::recipe {

struct LayerRule {
    std::string patterns; // with commas; * stands for any characters, ? for one
    // Names and texts, in order. "recipe" is a preset: all that it says of a layer.
    std::vector<std::pair<std::string, std::string>> values;
};

// Patterns alone are a rule with gemm.scaling none. Throws invalid_argument or unknown_name, naming the rule.
std::vector<LayerRule> parse_layer_rules(const std::string& text);
// What a layer of this name has: the values of all rules that it fits, the later ones over the earlier, and no rules. A layer
// without a name fits none. Throws invalid_argument where they cannot be together.
Recipe for_layer(const Recipe& recipe, const std::string& name);
// Likewise what a parameter of this name is kept and gathered in. The products of layers stay as they are.
Recipe for_parameter(const Recipe& recipe, const std::string& name);
// The patterns that the name fits, with commas; empty where there are none.
std::string fitting_patterns(const Recipe& recipe, const std::string& name);

} // namespace mp::recipe
