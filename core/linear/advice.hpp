// SPDX-License-Identifier: Apache-2.0
// What the counts of an operand suggest to change in the recipe.
#pragma once

#include <string>

#include "linear/scaling_state.hpp"

namespace mp::linear {

// One sentence that names a key; empty where all is well.
std::string advice_for(const recipe::Fp8Policy& policy, recipe::Operand operand,
                       const numerics::QuantStats& stats);

} // namespace mp::linear
