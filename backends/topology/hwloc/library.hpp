// SPDX-License-Identifier: Apache-2.0
// hwloc, opened at first use: where it is not installed, the cores come from the affinity mask.
#pragma once

#include <hwloc.h>

#include "vendor/library.hpp"

namespace mp::topology {

// Opened once for the process, by any thread. Only then, and where it is usable, may a hwloc_* function be called.
const vendor::OptionalLibrary& hwloc_library() noexcept;

} // namespace mp::topology
