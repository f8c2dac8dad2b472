// SPDX-License-Identifier: Apache-2.0
// Delayed scaling: the scale of a tensor follows from its amaxes of earlier steps. One rule with
// switches covers Transformer Engine's recipe and MS-AMP's window.
#pragma once

#include <cstdint>

#include "numerics/host_device.hpp"
#include "numerics/scale_rules.hpp"

namespace mp::numerics {

enum class AmaxAlgo : int32_t { max = 0, most_recent = 1 };

struct DelayedRule {
    int32_t history_len = 1024;
    AmaxAlgo algo = AmaxAlgo::max;
    int32_t interval = 1; // scales change at every so many updates; histories at each
    // For so many updates a tensor is scaled by its own amax instead (MS-AMP: its window).
    int32_t warm_up = 0;
    ScalePolicy policy;
};

// Of one tensor, in device memory. Its history is beside it: history_len floats, of which element 0
// waits for this step's amax and 1 ... are the earlier ones, oldest first.
struct DelayedSlot {
    float multiply = 1.0F;
    float amax = 0.0F;   // of all casts since the last update, as a maximum of bit patterns
    int32_t updates = 0; // since the last one with an amax that was not finite
    int32_t reserved = 0;
};
static_assert(sizeof(DelayedSlot) == 16);

} // namespace mp::numerics
