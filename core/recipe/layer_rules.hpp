// SPDX-License-Identifier: Apache-2.0
// What the key "layers" says of layers and parameters, by their names.
#pragma once

#include <string>

#include "recipe/recipe.hpp"

namespace mp::recipe {

// What a layer of this name has: the values of all rules that it fits, the later ones over the earlier, and no rules. A layer
// without a name fits none. Throws invalid_argument where they cannot be together.
Recipe for_layer(const Recipe& recipe, const std::string& name);
// Likewise what a parameter of this name is kept and gathered in. The products of layers stay as they are.
Recipe for_parameter(const Recipe& recipe, const std::string& name);
// The patterns that the name fits, with commas; empty where there are none.
std::string fitting_patterns(const Recipe& recipe, const std::string& name);

} // namespace mp::recipe
