// SPDX-License-Identifier: Apache-2.0
// What the counts of an operand suggest to change in the recipe.
#pragma once

#include <string>

#include "linear/scaling_state.hpp"

namespace mp {

// One sentence that names a key; empty where all is well.
std::string advice_for(const Fp8Policy& policy, Operand operand, const numerics::QuantStats& stats);

} // namespace mp
