// SPDX-License-Identifier: Apache-2.0
// The cores by hwloc, which knows cpusets, hardware threads, packages and memory nodes.
#include "topology/topology.hpp"

#include <algorithm>
#include <exception>

#include "topology/hwloc/library.hpp"

namespace mp::topology {

namespace {

// Read once for the process, for which a machine stays what it is. It takes milliseconds and opens a hundred files, and
// hwloc runs this thread on one CPU after another, which waits where others work.
hwloc_topology_t loaded_topology() noexcept {
    static const hwloc_topology_t topology = [] {
        hwloc_topology_t made = nullptr;
        if (hwloc_topology_init(&made) == 0 && hwloc_topology_load(made) != 0) {
            hwloc_topology_destroy(made);
            made = nullptr;
        }
        return made;
    }();
    return topology;
}

// The topology, and the part of it that the calling thread may use now.
class Machine {
  public:
    Machine() noexcept : topology_(loaded_topology()), usable_(hwloc_bitmap_alloc()) {
        if (topology_ == nullptr || usable_ == nullptr) {
            return;
        }
        // hwloc has left out what the cpuset forbids; the affinity mask may say less.
        if (hwloc_get_cpubind(topology_, usable_, HWLOC_CPUBIND_THREAD) != 0) {
            hwloc_bitmap_fill(usable_);
        }
        hwloc_bitmap_and(usable_, usable_, hwloc_topology_get_allowed_cpuset(topology_));
        is_known_ = hwloc_bitmap_iszero(usable_) == 0;
    }
    Machine(const Machine&) = delete;
    Machine& operator=(const Machine&) = delete;
    ~Machine() { hwloc_bitmap_free(usable_); }

    [[nodiscard]] bool is_known() const noexcept { return is_known_; }
    // Objects of a type with at least one usable CPU.
    [[nodiscard]] int32_t count(hwloc_obj_type_t type) const noexcept {
        int32_t found = 0;
        for (hwloc_obj_t object = next(type, nullptr); object != nullptr;
             object = next(type, object)) {
            found += first_cpu(object) >= 0 ? 1 : 0;
        }
        return found;
    }
    [[nodiscard]] int32_t machine_cpus() const noexcept {
        return std::max(0, hwloc_get_nbobjs_by_type(topology_, HWLOC_OBJ_PU));
    }
    void list_cores(std::vector<Topology::Core>& cores) const {
        for (hwloc_obj_t core = next(HWLOC_OBJ_CORE, nullptr); core != nullptr;
             core = next(HWLOC_OBJ_CORE, core)) {
            if (const int32_t cpu = first_cpu(core); cpu >= 0) {
                cores.push_back({cpu, std::max(0, hwloc_bitmap_first(core->nodeset))});
            }
        }
    }

  private:
    [[nodiscard]] hwloc_obj_t next(hwloc_obj_type_t type, hwloc_obj_t object) const noexcept {
        return hwloc_get_next_obj_by_type(topology_, type, object);
    }
    // Its first usable CPU, or -1.
    [[nodiscard]] int32_t first_cpu(hwloc_obj_t object) const noexcept {
        int cpu = hwloc_bitmap_first(object->cpuset);
        while (cpu >= 0 && hwloc_bitmap_isset(usable_, static_cast<unsigned>(cpu)) == 0) {
            cpu = hwloc_bitmap_next(object->cpuset, cpu);
        }
        return cpu;
    }

    hwloc_topology_t topology_;
    hwloc_bitmap_t usable_;
    bool is_known_ = false;
};

} // namespace

Topology detect() noexcept {
    if (!hwloc_library().is_usable) {
        return detect_by_affinity(hwloc_library().reason.c_str());
    }
    Topology found;
    const Machine machine;
    if (!machine.is_known()) {
        return detect_by_affinity("hwloc could not read the machine");
    }
    try {
        machine.list_cores(found.cores);
    } catch (const std::exception&) {
        found.cores.clear(); // then threads stay unbound
    }
    found.logical_cpus = std::max(1, machine.count(HWLOC_OBJ_PU));
    // Where the system does not tell cores apart there are none.
    const int32_t cores = machine.count(HWLOC_OBJ_CORE);
    found.physical_cores = cores > 0 ? cores : found.logical_cpus;
    found.numa_nodes = std::max(1, machine.count(HWLOC_OBJ_NUMANODE));
    found.packages = std::max(1, machine.count(HWLOC_OBJ_PACKAGE));
    found.sentence.set("hwloc: this process may use %d core(s) with %d of the machine's %d CPU(s), "
                       "in %d package(s) "
                       "and %d NUMA node(s)",
                       static_cast<int>(found.physical_cores), static_cast<int>(found.logical_cpus),
                       static_cast<int>(machine.machine_cpus()), static_cast<int>(found.packages),
                       static_cast<int>(found.numa_nodes));
    return found;
}

} // namespace mp::topology
