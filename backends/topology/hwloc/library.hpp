// SPDX-License-Identifier: Apache-2.0
// hwloc, opened at first use: where it is not installed, the cores come from the affinity mask.
#pragma once

#include <hwloc.h>

#include "status/status.hpp"

namespace mp::topology {

struct HwlocLibrary {
    bool is_usable = false;
    TextLine<512> reason; // why it is not
};

// Opened once for the process, by any thread. Only then, and where it is usable, may a hwloc_* function be called.
const HwlocLibrary& hwloc_library() noexcept;

} // namespace mp::topology
