// SPDX-License-Identifier: Apache-2.0
// The order in which the host's matrix products are tried, by what this processor is measured to do.
#pragma once

#include <array>

#include "host/gemm/host_gemm.hpp"

namespace mp::backends::host {

inline constexpr int32_t kMaxImplementations = 5;

// One implementation's rate, on one thread, for one type of operands.
struct Rate {
    const GemmImplementation* implementation = nullptr;
    DType dtype = DType::none;
    double gflops = 0.0; // 0: it does not take them
};

// How much faster an implementation must be to overtake one that our own order puts before it. Half or
// double is what instruction sets differ by; less is left to the order, so that noise cannot change the
// bits of a program from one run to the next.
inline constexpr double kClearlyFaster = 1.25;

struct Ranking {
    std::array<const GemmImplementation*, kMaxImplementations> order{};
    std::array<Rate, kMaxImplementations> rates{};
    int32_t count = 0;
};

// Our own order: what an implementation takes is disjoint or, within a type, best first on the machines
// we know. Every implementation of this build, once.
Ranking default_ranking() noexcept;

// `rates` in the default order; overtaking happens between implementations measured for the same type.
void rank_by_rates(Ranking& ranking) noexcept;

// Measures (a few milliseconds on the calling thread) and ranks.
Ranking measure_ranking(ScratchPool& pool) noexcept;

} // namespace mp::backends::host
