// SPDX-License-Identifier: Apache-2.0
// Binding, the same for every way of finding the cores.
#include <cerrno>
#include <cstring>

#include <sched.h>

#include "topology/topology.hpp"

namespace mp::topology {

Status bind_thread(pthread_t thread, const Topology& topology, int32_t worker) noexcept {
    if (topology.core_cpus.empty() || worker < 0) {
        return Status::error(Code::unsupported,
                             "the cores of this machine are not known; thread %d stays unbound",
                             static_cast<int>(worker));
    }
    const auto index = static_cast<std::size_t>(worker) % topology.core_cpus.size();
    const int32_t cpu = topology.core_cpus[index];
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(cpu, &mask);
    const int error =
        cpu >= CPU_SETSIZE ? EINVAL : pthread_setaffinity_np(thread, sizeof mask, &mask);
    if (error != 0) {
        return Status::error(Code::unsupported,
                             "the system does not let thread %d be bound to CPU %d: %s",
                             static_cast<int>(worker), static_cast<int>(cpu), std::strerror(error));
    }
    return {};
}

} // namespace mp::topology
