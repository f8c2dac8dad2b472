// SPDX-License-Identifier: Apache-2.0
#include "host/resources/threads.hpp"

#include <algorithm>

namespace mp::backends::host {

Status choose_threads(int32_t asked, const topology::Topology& topology, const ThreadLimits& limits,
                      ThreadCount& out) noexcept {
    if (asked < 0 || asked > kMaxThreads) {
        return Status::error(Code::invalid_argument, "host: num_threads is %d; it must be in 0..%d",
                             static_cast<int>(asked), static_cast<int>(kMaxThreads));
    }
    if (asked > 0) {
        out.count = asked;
        out.reason.set("as the caller asked");
        return {};
    }
    out.count = std::max(topology.physical_cores, 1);
    out.reason.set("one for each physical core this process may use");
    const struct {
        int32_t most;
        const char* what;
    } all[] = {{kMaxThreads, "the most there can be"},
               {limits.cgroup_cpus, "the CPU time of its control group"},
               {limits.omp_threads, "OMP_NUM_THREADS"},
               {limits.free_cores, "cores that no other context has bound"}};
    for (const auto& [most, what] : all) {
        if (most > 0 && most < out.count) {
            out.count = most;
            out.reason.set("%s, of %d physical cores", what,
                           static_cast<int>(topology.physical_cores));
        }
    }
    return {};
}

} // namespace mp::backends::host
