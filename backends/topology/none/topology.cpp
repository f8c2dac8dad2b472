// SPDX-License-Identifier: Apache-2.0
#include "topology/topology.hpp"

#include <algorithm>
#include <sched.h>

namespace mp::topology {

// Hardware threads of one core are not told apart here: each counts as a core.
Topology detect() noexcept {
    Topology found;
    cpu_set_t mask;
    CPU_ZERO(&mask);
    if (sched_getaffinity(0, sizeof mask, &mask) == 0) {
        found.logical_cpus = std::max(1, CPU_COUNT(&mask));
    }
    found.physical_cores = found.logical_cpus;
    found.sentence.set(
        "the affinity mask has %d processor(s); built without hwloc, so nothing more is known",
        found.logical_cpus);
    return found;
}

Status bind_current_thread(int32_t worker) noexcept {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    if (sched_getaffinity(0, sizeof mask, &mask) != 0 || CPU_COUNT(&mask) == 0) {
        return Status::error(Code::unsupported,
                             "the affinity mask cannot be read; threads stay unbound");
    }
    int32_t left = worker % CPU_COUNT(&mask);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &mask) && left-- == 0) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            if (sched_setaffinity(0, sizeof one, &one) == 0) {
                return {};
            }
        }
    }
    return Status::error(Code::unsupported, "the system does not let thread %d be bound", worker);
}

} // namespace mp::topology
