// SPDX-License-Identifier: Apache-2.0
// amax as a Kokkos kernel. The maximum of bit patterns does not depend on the order.
#pragma once

#include "kernels/array.hpp"
#include "kernels/exec.hpp"
#include "numerics/delayed_scaling.hpp"

namespace mp::kernels {

// The state of delayed scaling, if there is one. Whether it is warm only the device knows.
struct DelayedWarmth {
    const numerics::DelayedState* state = nullptr;
    int32_t warm_up = 0;

    [[nodiscard]] KOKKOS_INLINE_FUNCTION bool is_warm() const {
        return state != nullptr && state->updates >= warm_up;
    }
};

KOKKOS_INLINE_FUNCTION uint32_t larger_magnitude(uint32_t largest, float x) {
    const uint32_t magnitude = numerics::bits_from_float(x) & numerics::kFloatMagnitudeMask;
    return magnitude > largest ? magnitude : largest;
}

struct ClearAmax {
    float* amax;
    const uint32_t* skip = nullptr;
    KOKKOS_INLINE_FUNCTION void operator()(int64_t) const {
        if (skip == nullptr || *skip == 0) {
            *amax = 0.0F;
        }
    }
};

// A team finds the maximum of one block.
template <class Exec> struct AmaxTeams {
    static constexpr int kThreads = 256;
    static constexpr int64_t kPiece = 16384;
    static constexpr std::size_t kScratch = sizeof(uint32_t);

    TensorRef source;
    float* result;
    const uint32_t* skip;
    DelayedWarmth warmth;

    KOKKOS_INLINE_FUNCTION void operator()(const TeamOf<Exec>& team) const {
        if ((skip != nullptr && *skip != 0) || warmth.is_warm()) {
            return;
        }
        auto& shared = *static_cast<uint32_t*>(team.team_shmem().get_shmem(std::size_t{kScratch}));
        if (team.team_rank() == 0) {
            shared = 0;
        }
        team.team_barrier();
        const int64_t first = team.league_rank() * kPiece;
        const int64_t end = first + kPiece < source.count ? first + kPiece : source.count;
        uint32_t largest = 0;
        visit_array(source, [&](const auto& array) {
            for (int64_t i = first + team.team_rank(); i < end; i += team.team_size()) {
                largest = larger_magnitude(largest, array(i));
            }
        });
        Kokkos::atomic_max(&shared, largest);
        team.team_barrier();
        if (team.team_rank() == 0) {
            // With a sign, so that a negative result is below every magnitude.
            Kokkos::atomic_max(reinterpret_cast<int32_t*>(result), static_cast<int32_t>(shared));
        }
    }
};

// Where the state is warm nobody asks for the amax: the source is not read, and the result is as for no elements.
template <class Exec>
void amax(const Exec& exec, const AmaxDesc& op, const DelayedWarmth& warmth = {}) {
    using Teams = AmaxTeams<Exec>;
    if (!op.accumulate) {
        for_each(exec, "mp::clear_amax", 1, ClearAmax{op.result, op.skip});
    }
    for_each_team(exec, "mp::amax", divide_up(op.source.count, Teams::kPiece), Teams::kThreads,
                  Teams::kScratch, Teams{op.source, op.result, op.skip, warmth});
}

} // namespace mp::kernels
