// SPDX-License-Identifier: Apache-2.0
#include "topology/topology.hpp"

#include <algorithm>
#include <hwloc.h>

namespace mp::topology {
namespace {

// The loaded topology, restricted to what this process may use.
class Machine {
  public:
    Machine() noexcept {
        if (hwloc_topology_init(&topology_) != 0) {
            return;
        }
        if (hwloc_topology_load(topology_) != 0) {
            hwloc_topology_destroy(topology_);
            return;
        }
        loaded_ = true;
        const hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
        if (allowed != nullptr &&
            hwloc_get_cpubind(topology_, allowed, HWLOC_CPUBIND_PROCESS) == 0 &&
            hwloc_bitmap_iszero(allowed) == 0) {
            (void)hwloc_topology_restrict(topology_, allowed, 0);
        }
        hwloc_bitmap_free(allowed);
    }
    Machine(const Machine&) = delete;
    Machine& operator=(const Machine&) = delete;
    ~Machine() {
        if (loaded_) {
            hwloc_topology_destroy(topology_);
        }
    }

    [[nodiscard]] bool loaded() const noexcept { return loaded_; }
    [[nodiscard]] hwloc_topology_t get() const noexcept { return topology_; }
    [[nodiscard]] int32_t count(hwloc_obj_type_t type) const noexcept {
        return std::max(1, hwloc_get_nbobjs_by_type(topology_, type));
    }

  private:
    hwloc_topology_t topology_ = nullptr;
    bool loaded_ = false;
};

} // namespace

Topology detect() noexcept {
    Topology found;
    const Machine machine;
    if (!machine.loaded()) {
        found.sentence.set("hwloc could not read the machine; working with 1 core");
        return found;
    }
    found.logical_cpus = machine.count(HWLOC_OBJ_PU);
    found.physical_cores = std::min(machine.count(HWLOC_OBJ_CORE), found.logical_cpus);
    found.numa_nodes = machine.count(HWLOC_OBJ_NUMANODE);
    found.packages = machine.count(HWLOC_OBJ_PACKAGE);
    found.sentence.set("hwloc found %d physical core(s) with %d hardware thread(s) for this "
                       "process, in %d package(s) and "
                       "%d NUMA node(s)",
                       found.physical_cores, found.logical_cpus, found.packages, found.numa_nodes);
    return found;
}

Status bind_current_thread(int32_t worker) noexcept {
    const Machine machine;
    if (!machine.loaded()) {
        return Status::error(Code::unsupported,
                             "hwloc could not read the machine; threads stay unbound");
    }
    const int32_t cores = machine.count(HWLOC_OBJ_CORE);
    const hwloc_obj_t core =
        hwloc_get_obj_by_type(machine.get(), HWLOC_OBJ_CORE, static_cast<unsigned>(worker % cores));
    if (core == nullptr ||
        hwloc_set_cpubind(machine.get(), core->cpuset, HWLOC_CPUBIND_THREAD) != 0) {
        return Status::error(Code::unsupported,
                             "the system does not let thread %d be bound to a core", worker);
    }
    return {};
}

} // namespace mp::topology
