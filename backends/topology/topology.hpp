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
    // One for each core, neighbours side by side; without any, threads stay unbound.
    struct Core {
        int32_t cpu;  // the system's number of one of its CPUs
        int32_t node; // and of its NUMA node
        bool operator==(const Core&) const = default;
    };
    std::vector<Core> cores;
    TextLine<512> sentence; // what was found, and by what
};

// Never fails: what cannot be found out counts as 1, and the sentence says so.
Topology detect() noexcept;
// By the affinity mask alone; `why` ends the sentence.
Topology detect_by_affinity(const char* why) noexcept;

// The cores of one device's threads, until it ends: no two leases of this process have one in common. What other
// processes bind is not known here; ranks of a machine are given cores of their own by their launcher.
class CoreLease {
  public:
    CoreLease() = default;
    CoreLease(const CoreLease&) = delete;
    CoreLease& operator=(const CoreLease&) = delete;
    ~CoreLease();

    // `count` free cores of the topology: of one NUMA node where one has so many, of the fullest such node; else in the
    // order of the machine. Failing that, a status that says how many are free, and none is taken.
    Status take(const Topology& topology, int32_t count) noexcept;
    [[nodiscard]] const std::vector<int32_t>& cpus() const noexcept { return cpus_; }

  private:
    std::vector<int32_t> cpus_;
};

// The cores of the topology that no lease has.
int32_t free_cores(const Topology& topology) noexcept;

Status bind_thread(pthread_t thread, int32_t cpu) noexcept;

} // namespace mp::topology
