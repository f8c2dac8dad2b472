// SPDX-License-Identifier: Apache-2.0
// By the affinity mask alone: hardware threads of one core are not told apart, so each counts as a core.
#include "topology/topology.hpp"

#include <algorithm>
#include <exception>

#include <sched.h>

namespace mp::topology {

Topology detect_by_affinity(const char* why) noexcept {
    Topology found;
    cpu_set_t mask;
    CPU_ZERO(&mask);
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) {
        found.sentence.set("the affinity mask cannot be read; working with 1 core");
        return found;
    }
    try {
        for (int32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
            if (CPU_ISSET(cpu, &mask)) {
                found.cores.push_back({cpu, 0});
            }
        }
    } catch (const std::exception&) {
        found.cores.clear(); // then threads stay unbound
    }
    found.logical_cpus = std::max(1, CPU_COUNT(&mask));
    found.physical_cores = found.logical_cpus;
    found.sentence.set("%d CPU(s) in the affinity mask, each taken for a core (%s)",
                       static_cast<int>(found.logical_cpus), why);
    return found;
}

} // namespace mp::topology
