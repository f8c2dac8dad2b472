// SPDX-License-Identifier: Apache-2.0
// Layers that a caller lists, and what is reported about them when their step ends.
#pragma once

#include <vector>

#include "objects.hpp"

namespace mp::capi {

// Those behind the handles, of which some may be NULL.
std::vector<std::shared_ptr<LinearObject>> listed_layers(mp_linear* const* linears, int32_t count);

mp_linear_stats public_stats(const linear::Linear& layer, recipe::Operand operand,
                             const linear::OperandState& state);

// Those that have a monitor. A list of its own: a monitor may name other layers to the optimizer.
std::vector<std::shared_ptr<LinearObject>>
monitored(const std::vector<std::shared_ptr<LinearObject>>& layers);

// After the layer's step has ended: its monitor, where it is due. Waits then.
void call_monitor(LinearObject& object, Stream& stream);
// Throws in a capture, where one of them has a monitor: a replay would call none.
void check_monitors(const std::vector<std::shared_ptr<LinearObject>>& layers, Stream& stream);

} // namespace mp::capi
