// SPDX-License-Identifier: Apache-2.0
// Counts of elements by rank, and where they begin.
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "dtype/divide.hpp"

namespace mp::comm {

inline constexpr int64_t kLine = 64; // bytes that messages are apart in a buffer

[[nodiscard]] inline std::vector<int64_t> sums_before(std::span<const int64_t> counts) {
    std::vector<int64_t> offsets(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), int64_t{0});
    return offsets;
}

[[nodiscard]] inline int64_t total_of(std::span<const int64_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

} // namespace mp::comm
