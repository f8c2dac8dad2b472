// SPDX-License-Identifier: Apache-2.0
// Starting and ending this binary's own Kokkos. Each of our binaries links its own copy, compiles
// its own runtime.cpp, and disturbs no Kokkos of the program that loads it.
#pragma once

#include <cstdint>

#include "status/status.hpp"

namespace mp::backends::kokkos {

// Starts Kokkos if it has not been started; the first caller's arguments count. Takes nothing from
// environment variables, prints nothing, and leaves the calling thread's OpenMP settings alone.
// num_threads: of the default host instance. device_id: of the accelerator, or -1. bad_state after
// shutdown().
Status start(int32_t num_threads, int32_t device_id) noexcept;

[[nodiscard]] bool is_running() noexcept;

// Ends Kokkos, for good: it cannot be started twice in one process. Nothing may be running on it.
// Without this call Kokkos lives until the process ends, which is meant.
void shutdown() noexcept;

} // namespace mp::backends::kokkos
