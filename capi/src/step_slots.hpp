// SPDX-License-Identifier: Apache-2.0
// The arrays of a step on the caller's pointers.
#pragma once

#include <vector>

#include "mixedprec/step.h"
#include "optim/step_plan.hpp"

namespace mp::capi {

// The arrays of a step, and the amaxes that are wanted of it.
struct Slots {
    std::vector<UpdateSegment> segments;
    std::vector<optim::ParamAmax> amaxes;
};

// Throws where an array is none that a step of this rule can have.
Slots read_slots(const mp_step_slot* slots, int64_t count, numerics::RuleId rule);

} // namespace mp::capi
