// SPDX-License-Identifier: Apache-2.0
// Two ranks that are threads.
#pragma once

#include <functional>
#include <thread>

namespace mp_bench {

inline constexpr int kRanks = 2;

// Until both have run `body`. A new thread each time takes microseconds, the bodies take milliseconds.
inline void on_ranks(const std::function<void(int)>& body) {
    std::thread other(body, 1);
    body(0);
    other.join();
}

} // namespace mp_bench
