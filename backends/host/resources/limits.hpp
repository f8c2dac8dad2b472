// SPDX-License-Identifier: Apache-2.0
// What this process is not to use all of: fewer CPUs than it may run on.
#pragma once

#include <cstdint>
#include <string>

namespace mp::backends::host {

// 0: no limit.
struct ThreadLimits {
    int32_t cgroup_cpus =
        0; // the CPU time of its control group, in CPUs, the last one perhaps a part
    int32_t omp_threads = 0; // OMP_NUM_THREADS, which many job managers set
    int32_t free_cores = 0;  // of threads to be bound: cores that no other context has
};

// Never fails: what cannot be read is no limit.
ThreadLimits thread_limits() noexcept;

// The least that the control groups named in a file like /proc/self/cgroup are given, and the groups above them; `mount`:
// where their files are (/sys/fs/cgroup). May throw for lack of memory.
int32_t cgroup_cpus(const std::string& membership, const std::string& mount);

// The first number of OMP_NUM_THREADS ("4", "4,2"); 0 where it is none.
int32_t parse_omp_threads(const char* text) noexcept;

} // namespace mp::backends::host
