// SPDX-License-Identifier: Apache-2.0
// The scales of an optimizer step with scaled states: a first pass that only measures, and what is done once a segment.
#pragma once

#include "kernels/amax.hpp"
#include "kernels/update_arrays.hpp"

namespace mp::kernels {

KOKKOS_INLINE_FUNCTION void raise_all(UpdateScaling& all, const UpdateScaling& here) {
    Kokkos::atomic_max(&all.weight_amax, here.weight_amax);
    for (int k = 0; k < numerics::kMaxStates; ++k) {
        Kokkos::atomic_max(&all.state_amax[k], here.state_amax[k]);
    }
}

// What happens to each segment before, between and after the two passes.
enum class ScalingStage { clear, renew, store };

template <ScalingStage kStage> struct UpdateScales {
    OptimizerUpdateDesc op;

    KOKKOS_INLINE_FUNCTION void operator()(int64_t i) const {
        const UpdateSegment& segment = op.table.segments[i];
        if (op.state->skip != 0 || !segment.has_scaled_states()) {
            return;
        }
        if constexpr (kStage == ScalingStage::clear) {
            op.scaling[i] = UpdateScaling{};
        } else if constexpr (kStage == ScalingStage::renew) {
            renew_scales(segment, op.scaling[i]);
        } else {
            store_scales(segment, op.scaling[i]);
        }
    }
};

// The first pass over segments with scaled states: maxima only.
template <class Exec> struct MeasureTeams {
    static constexpr int kThreads = 256;
    static constexpr int kEach = 4;

    OptimizerUpdateDesc op;

    KOKKOS_FORCEINLINE_FUNCTION void operator()(const TeamOf<Exec>& team) const {
        const Chunk chunk = op.table.chunks[team.league_rank()];
        const UpdateSegment segment = op.table.segments[chunk.segment];
        if (op.state->skip != 0 || !segment.has_scaled_states()) {
            return;
        }
        const numerics::GroupScalars scalars = op.scalars[segment.group];
        const int64_t limit = chunk.start + kChunkElements;
        const int64_t end = limit < segment.count ? limit : segment.count;
        UpdateScaling here{};
        numerics::with_rule(scalars.rule, [&](auto rule) MP_INLINED {
            using Rule = decltype(rule);
            const typename Rule::Scalars k = scalars.as<Rule>();
            for (int64_t i = chunk.start + team.team_rank(); i < end;
                 i += kEach * team.team_size()) {
                const Tile<kEach> tile{i, team.team_size(), end};
                UpdateElements<true, kEach> e{};
                e.template load<Rule>(segment, tile);
                tile.for_each([&](int j, int64_t /*i*/) MP_INLINED {
                    const float delta = e.template delta<Rule>(k, scalars.grad_mul, j);
                    here.weight_amax = larger_magnitude(here.weight_amax, e.weight[j] + delta);
                    numerics::for_each_state<Rule>([&](auto state) MP_INLINED {
                        constexpr int kState = decltype(state)::kIndex;
                        here.state_amax[kState] =
                            larger_magnitude(here.state_amax[kState], e.states[kState][j]);
                    });
                });
            }
        });
        raise_all(op.scaling[chunk.segment], here);
    }
};

} // namespace mp::kernels
