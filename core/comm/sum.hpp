// SPDX-License-Identifier: Apache-2.0
// Sums of parts that lie in memory, on the stream's device.
#pragma once

#include <cstdint>
#include <span>

#include "device/ops.hpp"
#include "runtime/stream.hpp"

namespace mp::comm {

// What contributions are added in. automatic: fp32, or fixed point for exact.
enum class Accumulate : int32_t { automatic = 0, fp32 = 1, fp64 = 2, fixed = 3 };

inline constexpr int32_t kMostSlots = 1 << 20;

// Enqueues a sum of parts; on another device than the host the table of parts is copied there. kind, parts,
// host_parts and part_count are filled in.
void sum_parts(Stream& stream, std::span<const SumPart> parts, SumPartsDesc op);

} // namespace mp::comm
