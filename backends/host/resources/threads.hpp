// SPDX-License-Identifier: Apache-2.0
// How many threads a host device works with, and why.
#pragma once

#include <cstdint>

#include "host/resources/limits.hpp"
#include "status/status.hpp"
#include "topology/topology.hpp"

namespace mp::backends::host {

inline constexpr int32_t kMaxThreads = 512;

struct ThreadCount {
    int32_t count = 1;
    TextLine<128> reason;
};

// `asked` 0: one for each physical core that the topology offers, within the limits. invalid_argument outside
// 0..kMaxThreads.
Status choose_threads(int32_t asked, const topology::Topology& topology, const ThreadLimits& limits,
                      ThreadCount& out) noexcept;

} // namespace mp::backends::host
