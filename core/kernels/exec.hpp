// SPDX-License-Identifier: Apache-2.0
// How every kernel here is launched. A host thread works on a whole chunk by one call of the
// instruction set's compiled body; a thread of an accelerator works on one element at a time.
#pragma once

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <type_traits>

#include "kernels/chunk/jobs.hpp"

namespace mp::kernels {

// The chunk bodies of one instruction set; what a host space is launched with.
struct TableOps {
    const ChunkTable* table;
};

// An accelerator needs no table: its bodies are compiled into the kernel.
struct InlineOps {};

template <class Exec>
inline constexpr bool kIsHost = std::is_same_v<typename Exec::memory_space, Kokkos::HostSpace>;

// Above this Kokkos hands a functor over in constant memory, of which a device has one block: the host then waits for the
// kernel before, of whatever stream, and no graph can be captured (Kokkos 4.7, CudaTraits::ConstantMemoryUseThreshold).
inline constexpr std::size_t kLargestLaunch = 512;

template <class Exec, class Functor, class Policy> constexpr void check_launch() {
    if constexpr (!kIsHost<Exec>) {
        static_assert(sizeof(Kokkos::Impl::ParallelFor<Functor, Policy, Exec>) <= kLargestLaunch);
    }
}

// Calls functor(i) for 0 <= i < n. A label has at most 15 characters where a step must not allocate: Kokkos makes a string
// of it. A single call is made by the calling thread, without waking others. On a host space there are no reductions: a team may get fewer threads than it asked for,
// and a Kokkos reduction would then read the missing threads' leftovers.
template <class Exec, class Functor>
void for_each(const Exec& exec, const char* label, int64_t n, const Functor& functor) {
    if constexpr (kIsHost<Exec>) {
        if (n == 1) {
            functor(int64_t{0});
            return;
        }
    }
    using Policy =
        Kokkos::RangePolicy<Exec, Kokkos::Schedule<Kokkos::Static>, Kokkos::IndexType<int64_t>>;
    check_launch<Exec, Functor, Policy>();
    if (n > 0) {
        Kokkos::parallel_for(label, Policy(exec, 0, n), functor);
    }
}

// functor(team) for each of n teams of `threads` threads of an accelerator, Functor::kThreads at most. The bound is the
// compiler's too: with more registers for each thread than such a team can have, the launch would be refused.
template <class Exec> using TeamPolicyOf = Kokkos::TeamPolicy<Exec, Kokkos::IndexType<int64_t>>;
template <class Exec> using TeamOf = typename TeamPolicyOf<Exec>::member_type;

template <class Exec, class Functor>
void for_each_team(const Exec& exec, const char* label, int64_t teams, int threads,
                   std::size_t scratch_bytes, const Functor& functor) {
    using Policy = Kokkos::TeamPolicy<Exec, Kokkos::IndexType<int64_t>,
                                      Kokkos::LaunchBounds<Functor::kThreads, 1>>;
    check_launch<Exec, Functor, Policy>();
    if (teams > 0) {
        Policy policy(exec, static_cast<int>(teams), threads);
        policy.set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(scratch_bytes)));
        Kokkos::parallel_for(label, policy, functor);
    }
}

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

} // namespace mp::kernels
