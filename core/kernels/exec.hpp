// SPDX-License-Identifier: Apache-2.0
// How every kernel here is launched, on any execution space. What a kernel computes does not depend on how many threads its
// teams get: Kokkos::Serial gives one, its other host spaces a few, an accelerator as many as are asked for.
#pragma once

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <type_traits>

#include "device/ops.hpp"
#include "dtype/divide.hpp"

namespace mp::kernels {

// Above this Kokkos hands a functor over in constant memory, of which a device has one block: the host then waits for the
// kernel before, of whatever stream, and no graph can be captured (Kokkos 4.7, CudaTraits::ConstantMemoryUseThreshold).
inline constexpr std::size_t kLargestLaunch = 512;

template <class Exec, class Functor, class Policy> constexpr void check_launch() {
    if constexpr (!std::is_same_v<typename Exec::memory_space, Kokkos::HostSpace>) {
        static_assert(sizeof(Kokkos::Impl::ParallelFor<Functor, Policy, Exec>) <= kLargestLaunch);
    }
}

// Calls functor(i) for 0 <= i < n. A label has at most 15 characters where a step must not allocate: Kokkos makes a string
// of it.
template <class Exec, class Functor>
void for_each(const Exec& exec, const char* label, int64_t n, const Functor& functor) {
    using Policy =
        Kokkos::RangePolicy<Exec, Kokkos::Schedule<Kokkos::Static>, Kokkos::IndexType<int64_t>>;
    check_launch<Exec, Functor, Policy>();
    if (n > 0) {
        Kokkos::parallel_for(label, Policy(exec, 0, n), functor);
    }
}

template <class Exec> using TeamPolicyOf = Kokkos::TeamPolicy<Exec, Kokkos::IndexType<int64_t>>;
template <class Exec> using TeamOf = typename TeamPolicyOf<Exec>::member_type;

// How many teams a GPU's multiprocessor holds at least, which leaves each thread so many registers: Functor::kTeams, where it has
// one that it needs.
template <class Functor> constexpr unsigned min_teams() {
    if constexpr (requires { Functor::kTeams; }) {
        return Functor::kTeams;
    } else {
        return 1;
    }
}

// functor(team) for each of n teams of `threads` threads, Functor::kThreads at most, or as many as the space gives. The
// bound is the compiler's too: with more registers for each thread than such a team can have, the launch would be refused.
// Functors step by team.team_size(), or by tiles whose size is theirs: for_each_in_team().
template <class Exec, class Functor>
void for_each_team(const Exec& exec, const char* label, int64_t teams, int threads,
                   std::size_t scratch_bytes, const Functor& functor) {
    using Policy =
        Kokkos::TeamPolicy<Exec, Kokkos::IndexType<int64_t>,
                           Kokkos::LaunchBounds<Functor::kThreads, min_teams<Functor>()>>;
    check_launch<Exec, Functor, Policy>();
    if (teams > 0) {
        int size = threads;
        if constexpr (std::is_same_v<typename Exec::memory_space, Kokkos::HostSpace>) {
            const int most = static_cast<int>(exec.concurrency());
            size = size < most ? size : most;
        }
        Policy policy(exec, static_cast<int>(teams), size);
        policy.set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(scratch_bytes)));
        Kokkos::parallel_for(label, policy, functor);
    }
}

// body(i) for 0 <= i < n, each by one thread of the team: always the same one for the same i and n.
template <class Team, class Body>
KOKKOS_INLINE_FUNCTION void for_each_in_team(const Team& team, int n, const Body& body) {
    for (int i = team.team_rank(); i < n; i += team.team_size()) {
        body(i);
    }
}

} // namespace mp::kernels
