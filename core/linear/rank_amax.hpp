// SPDX-License-Identifier: Apache-2.0
// The amaxes of delayed scaling over ranks (fp8.reduce_amax): all operands of all layers in one message of maxima, by their
// bits, so that NaN and infinity on one rank are seen on every one.
#pragma once

#include <span>

#include "comm/communicator.hpp"
#include "linear/scaling_state.hpp"

namespace mp {

// Collective, before the states' end_step: each amax becomes the largest of all ranks. States without delayed
// scaling, or whose recipe keeps amaxes to themselves, are passed over; ranks have the same ones. Waits.
void reduce_amaxes(Stream& stream, comm::Communicator& comm,
                   std::span<const ScalingState* const> states);

} // namespace mp
