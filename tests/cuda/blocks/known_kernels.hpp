// SPDX-License-Identifier: Apache-2.0
// Kernels of which it is known what is wrong with them, and kernels with which nothing is.
#pragma once

#include <cstdint>

namespace mp::blocks {

struct KnownLaunch {
    uint32_t blocks = 1;
    uint32_t threads = 64;
    std::size_t dynamic_shared_bytes = 0;
    int64_t argument = 0;
};

// launch_<name>() runs known_<name>. False where the launch ended early.
#define MP_KNOWN(X)                                                                                \
    X(sum_without_barrier)                                                                         \
    X(sum_with_barrier)                                                                            \
    X(warp_exchange)                                                                               \
    X(one_place_by_all_blocks)                                                                     \
    X(read_what_others_write)                                                                      \
    X(count_by_atomics)                                                                            \
    X(read_shared_unwritten)                                                                       \
    X(strided)                                                                                     \
    X(misaligned)                                                                                  \
    X(shared_beyond)                                                                               \
    X(barrier_for_some)                                                                            \
    X(two_barriers)                                                                                \
    X(shuffle_without_some)                                                                        \
    X(transpose)                                                                                   \
    X(write_program)                                                                               \
    X(lane_operations)                                                                             \
    X(passes)                                                                                      \
    X(sum_of_halves)
#define X(name) bool launch_##name(const KnownLaunch& how, uint32_t* out, const uint32_t* in);
MP_KNOWN(X)
#undef X

} // namespace mp::blocks
