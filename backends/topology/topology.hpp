// SPDX-License-Identifier: Apache-2.0
// What the machine offers this process: cores, and where they are. Implemented by hwloc or, without it, by the
// operating system's affinity mask alone; the build chooses one.
#pragma once

#include <cstdint>

#include "status/status.hpp"

namespace mp::topology {

struct Topology {
    int32_t physical_cores = 1; // that this process may use
    int32_t logical_cpus = 1;   // likewise
    int32_t numa_nodes = 1;
    int32_t packages = 1;
    TextLine<256> sentence; // what was found, and by what
};

Topology detect() noexcept;

// Binds the calling thread to core `worker`, counted modulo the cores this process may use.
Status bind_current_thread(int32_t worker) noexcept;

} // namespace mp::topology
