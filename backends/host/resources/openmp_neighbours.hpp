// SPDX-License-Identifier: Apache-2.0
// OpenMP runtimes of the program, whose threads would spin beside ours.
//
// By default they spin for milliseconds after each loop, on the cores that ours are about to want. Each has a rule of its own
// for cores that are shared, so each is notified of our threads, once:
// - GNU's libgomp hardly spins while it has more threads than there are CPUs (its manual, GOMP_SPINCOUNT). It counts a team of
//   as many threads as ours, which sleep for ever.
// - LLVM's libomp and Intel's libiomp5 take kmp_set_blocktime(0) from the thread that runs the loops.
// Where the user has set the policy in the environment, nobody is notified. Nor is a runtime that oneDNN alone works with: it
// has no threads.
#pragma once

#include <cstdint>
#include <vector>

#include "status/status.hpp"

namespace mp::backends::host {

struct OpenmpRuntime {
    TextLine<256> path;
    bool is_gnu = false;
};

// Those that some object of this process is linked to, oneDNN aside.
std::vector<OpenmpRuntime> openmp_runtimes();

// Notifies them of `threads` threads of ours, the calling one among them. By the thread that is about to work with the others;
// now and then, for more may be loaded meanwhile. Does nothing where all know already.
void notify_openmp_neighbours(int32_t threads) noexcept;

// For mp_context_describe: what there is, and what is set in it for `threads` threads. `spins`: they will spin beside ours.
struct OpenmpReport {
    TextLine<512> sentence;
    bool spins = false;
};
OpenmpReport describe_openmp_neighbours(int32_t threads) noexcept;

} // namespace mp::backends::host
