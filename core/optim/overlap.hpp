// SPDX-License-Identifier: Apache-2.0
// A step works on its arrays in any order and on many threads, so nothing that it writes may lie in two of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/ops.hpp"
#include "tensor/disjoint_arrays.hpp"

namespace mp::optim {

// Numbers in device memory that a step reads beside its arrays; null where there are none.
struct StepControls {
    const void* lr = nullptr;           // one float
    const void* hyper_values = nullptr; // as numerics::GroupHyper::device_values
    const void* grad_scale = nullptr;   // one float
    const void* grad_mul = nullptr;     // one float
    const void* step = nullptr;         // one int64_t, counted up
    const numerics::LossScaleState* scaler = nullptr;
    std::span<const void* const> amaxes; // written; some may be the same
};

// Throws invalid_argument where an array or number that a step writes shares memory with another of them; the text names both.
// Gradients are written where `zero_grad` is set. O(n log n) in the number of arrays.
void check_no_overlap(std::span<const UpdateSegment> segments, numerics::RuleId rule,
                      bool zero_grad, const StepControls& controls = {});

} // namespace mp::optim
