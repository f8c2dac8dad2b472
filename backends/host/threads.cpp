// SPDX-License-Identifier: Apache-2.0
#include "host/threads.hpp"

#include <algorithm>

namespace mp::backends::host {

Status choose_threads(int32_t asked, const topology::Topology& topology,
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
    out.count = std::clamp(topology.physical_cores, 1, kMaxThreads);
    if (out.count < topology.physical_cores) {
        out.reason.set("the most there can be, of %d physical cores",
                       static_cast<int>(topology.physical_cores));
    } else {
        out.reason.set("one for each physical core this process may use");
    }
    return {};
}

} // namespace mp::backends::host
