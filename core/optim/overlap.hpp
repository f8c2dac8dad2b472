// SPDX-License-Identifier: Apache-2.0
// A step works on its arrays in any order and on many threads, so nothing that it writes may lie in two of them.
#pragma once

#include <span>

#include "interface/ops.hpp"

namespace mp::optim {

// Throws invalid_argument where an array that a step writes shares memory with another array of the segments; the text
// names both. Gradients are written where `zero_grad` is set. O(n log n) in the number of arrays.
void check_no_overlap(std::span<const UpdateSegment> segments, numerics::RuleId rule,
                      bool zero_grad);

} // namespace mp::optim
