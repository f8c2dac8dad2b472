// SPDX-License-Identifier: Apache-2.0
// What the machine offers this process: cores, and where they are. By hwloc or, where the build or the machine has
// none, by the operating system's affinity mask alone.
#pragma once

#include <cstdint>
#include <vector>

#include <pthread.h>

#include "status/status.hpp"

namespace mp::topology {

// Counts are of what the calling thread may use: its affinity mask, within the process's cpuset.
struct Topology {
    int32_t physical_cores = 1;
    int32_t logical_cpus = 1;
    int32_t numa_nodes = 1;
    int32_t packages = 1;
    std::vector<int32_t>
        core_cpus;          // the system's number of one CPU of each core, neighbours side by side
    TextLine<512> sentence; // what was found, and by what
};

// Never fails: what cannot be found out counts as 1, and the sentence says so.
Topology detect() noexcept;
// By the affinity mask alone; `why` ends the sentence.
Topology detect_by_affinity(const char* why) noexcept;

// Binds a thread to core `worker`, counted modulo the cores.
Status bind_thread(pthread_t thread, const Topology& topology, int32_t worker) noexcept;

} // namespace mp::topology
