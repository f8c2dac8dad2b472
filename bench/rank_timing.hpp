// SPDX-License-Identifier: Apache-2.0
// Two ranks that are threads, timed together.
#pragma once

#include <barrier>
#include <chrono>
#include <functional>
#include <limits>
#include <thread>

namespace mp_bench {

inline constexpr int kRanks = 2;

// Best seconds of a body run by both ranks at once, after a run that does not count.
inline double best_of_ranks(int repeats, const std::function<void(int)>& body) {
    std::barrier gate(kRanks);
    double best = std::numeric_limits<double>::infinity();
    const auto rank = [&](int r) {
        for (int i = 0; i <= repeats; ++i) {
            gate.arrive_and_wait();
            const auto start = std::chrono::steady_clock::now();
            body(r);
            gate.arrive_and_wait();
            const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
            if (r == 0 && i > 0 && took.count() < best) {
                best = took.count();
            }
        }
    };
    std::thread other(rank, 1);
    rank(0);
    other.join();
    return best;
}

} // namespace mp_bench
