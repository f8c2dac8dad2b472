// SPDX-License-Identifier: Apache-2.0
// The memory table of a context: the caller's hooks, or the C library's aligned allocation.
#pragma once

#include "device/backend.hpp"

namespace mp::system {

// The C library behind the table's signature.
MemoryTable default_memory() noexcept;

} // namespace mp::system
