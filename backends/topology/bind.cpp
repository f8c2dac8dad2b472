// SPDX-License-Identifier: Apache-2.0
// Binding, the same for every way of finding the cores.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <set>

#include <sched.h>

#include "topology/topology.hpp"

namespace mp::topology {

namespace {

struct Leased {
    std::mutex mutex;
    std::set<int32_t> cpus;
};

// Never destroyed: devices may end after it would be.
Leased& leased() {
    static auto* const all = new Leased;
    return *all;
}

std::vector<Topology::Core> free_ones(const Topology& topology, const Leased& all) {
    std::vector<Topology::Core> free;
    for (const Topology::Core& core : topology.cores) {
        if (!all.cpus.contains(core.cpu)) {
            free.push_back(core);
        }
    }
    return free;
}

// Leaves the cores of one node, if one has enough of them: the one with the fewest.
void keep_one_node(std::vector<Topology::Core>& free, int64_t count) {
    std::map<int32_t, int64_t> nodes;
    for (const Topology::Core& core : free) {
        ++nodes[core.node];
    }
    int32_t chosen = -1;
    for (const auto& [node, cores] : nodes) {
        if (cores >= count && (chosen < 0 || cores < nodes[chosen])) {
            chosen = node;
        }
    }
    if (chosen >= 0) {
        std::erase_if(free, [chosen](const Topology::Core& core) { return core.node != chosen; });
    }
}

} // namespace

CoreLease::~CoreLease() {
    const std::lock_guard<std::mutex> lock(leased().mutex);
    for (const int32_t cpu : cpus_) {
        leased().cpus.erase(cpu);
    }
}

Status CoreLease::take(const Topology& topology, int32_t count) noexcept {
    if (topology.cores.empty()) {
        return Status::error(Code::unsupported,
                             "the cores of this machine are not known; threads stay unbound");
    }
    try {
        Leased& all = leased();
        const std::lock_guard<std::mutex> lock(all.mutex);
        std::vector<Topology::Core> free = free_ones(topology, all);
        if (count < 1 || free.size() < static_cast<std::size_t>(count)) {
            return Status::error(
                Code::unsupported,
                "%d thread(s) are to be bound, but %d of %d core(s) are free: other contexts of "
                "this process have the others; ask for fewer threads, or for unbound ones",
                static_cast<int>(count), static_cast<int>(free.size()),
                static_cast<int>(topology.cores.size()));
        }
        keep_one_node(free, count);
        std::vector<int32_t> cpus(static_cast<std::size_t>(count));
        std::transform(free.begin(), free.begin() + count, cpus.begin(),
                       [](const Topology::Core& core) { return core.cpu; });
        std::set<int32_t> now = all.cpus;
        now.insert(cpus.begin(), cpus.end());
        all.cpus.swap(now);
        cpus_.swap(cpus);
        return {};
    } catch (const std::exception&) {
        return Status::error(Code::out_of_memory, "no memory to note which cores are bound");
    }
}

int32_t free_cores(const Topology& topology) noexcept {
    try {
        const std::lock_guard<std::mutex> lock(leased().mutex);
        return static_cast<int32_t>(free_ones(topology, leased()).size());
    } catch (const std::exception&) {
        return 0;
    }
}

Status bind_thread(pthread_t thread, int32_t cpu) noexcept {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    int error = EINVAL;
    if (cpu >= 0 && cpu < CPU_SETSIZE) {
        CPU_SET(cpu, &mask);
        error = pthread_setaffinity_np(thread, sizeof mask, &mask);
    }
    if (error != 0) {
        return Status::error(Code::unsupported,
                             "the system does not let a thread be bound to CPU %d: %s",
                             static_cast<int>(cpu), std::strerror(error));
    }
    return {};
}

} // namespace mp::topology
