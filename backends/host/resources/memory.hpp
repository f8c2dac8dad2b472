// SPDX-License-Identifier: Apache-2.0
// Host memory from the hooks of a device: cache-line alignment, and huge pages for what is large.
#pragma once

#include <cstddef>

#include "device/backend.hpp"
#include "process/huge_pages.hpp"

namespace mp::backends::host {

using process::kCacheLine;
// From this size on memory comes in huge pages where the system has them.
using process::kHugePage;

// Null for zero bytes, and when the hook gives nothing.
void* allocate_host(const MemoryTable& memory, std::size_t bytes) noexcept;
void release_host(const MemoryTable& memory, void* pointer, std::size_t bytes) noexcept;

} // namespace mp::backends::host
