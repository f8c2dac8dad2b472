// SPDX-License-Identifier: Apache-2.0
// The fused optimizer step as a Kokkos kernel, over the chunks of all segments at once.
#pragma once

#include "kernels/update_arrays.hpp"
#include "kernels/update_blocks.hpp"
#include "kernels/update_measure.hpp"

namespace mp::kernels {

// The step. Without blocks (kBlocks) there are fewer registers and no barriers, and a thread has two elements
// at a time: with more the compiler stops inlining, and the operation would lie in memory.
template <class Exec, bool kBlocks> struct UpdateTeams {
    static constexpr int kThreads = kUpdateTile;
    static constexpr int kEach = kBlocks ? 1 : 2;
    static constexpr int kTeamTile = kUpdateTile * kEach;
    static constexpr std::size_t kScratch = kBlocks ? sizeof(BlockValues) : 0;
    using Elements = UpdateElements<kBlocks, kEach>;

    OptimizerUpdateDesc op;

    // What the elements of a segment share.
    struct Context {
        const UpdateSegment& s;
        const UpdateScaling& scaling;
        const numerics::SrKey& key;
        BlockValues* later; // what is kept in blocks waits there for their scales
        int64_t tile_start; // of the team's elements
    };

    [[nodiscard]] KOKKOS_FORCEINLINE_FUNCTION TileRounding<kEach>
    param_rounding(const Context& c, const Tile<kEach>& tile) const {
        return {c.s.param.dtype,          op.stochastic_param, c.key,
                numerics::Purpose::param, c.s.first,           tile};
    }

    KOKKOS_FORCEINLINE_FUNCTION void store_compensated(const Context& c, const Tile<kEach>& tile,
                                                       const float (&weight)[kEach],
                                                       const float (&delta)[kEach]) const {
        const UpdateSegment& s = c.s;
        float carry[kEach] = {};
        load_values<kBlocks>(parts_of(s.compensation, s.count), true, tile, carry);
        const TileRounding<kEach> roundings = param_rounding(c, tile);
        visit_param(s, c.scaling, [&](const auto& param) MP_INLINED {
            tile.for_each([&](int j, int64_t i) MP_INLINED {
                const auto store = [&](float x) MP_INLINED { return param(i, x, roundings.of(j)); };
                numerics::compensated_add(weight[j], delta[j], carry[j], store);
            });
        });
        if (kBlocks && has_blocks(s.compensation.coding)) {
            tile.for_each([&](int j, int64_t i) MP_INLINED {
                c.later->put(BlockValues::kCompensation, s.compensation.coding,
                             static_cast<int>(i - c.tile_start), carry[j]);
            });
            return;
        }
        store_tile<kEach>({s.compensation.data, s.count, s.compensation.dtype}, tile,
                          [&](const auto& to, int j, int64_t i)
                              MP_INLINED { to.store(i, carry[j]); });
    }

    KOKKOS_FORCEINLINE_FUNCTION void store_remainder(const UpdateSegment& s,
                                                     const Tile<kEach>& tile,
                                                     const float (&updated)[kEach]) const {
        const auto count = static_cast<std::size_t>(s.count);
        const Words<uint16_t> param(static_cast<uint16_t*>(s.param.data), count);
        const Words<int16_t> low(static_cast<int16_t*>(s.master.data), count);
        tile.for_each([&](int j, int64_t i) MP_INLINED {
            const numerics::SplitMaster split = numerics::split_master(updated[j]);
            param(i) = split.param;
            low(i) = split.remainder;
        });
    }

    // The master weight, rounded as it is stored: the parameter is made of that.
    KOKKOS_FORCEINLINE_FUNCTION void store_master(const Context& c, const Tile<kEach>& tile,
                                                  float (&updated)[kEach]) const {
        const StepArray& a = c.s.master;
        const bool is_scaled = a.scale_inv != nullptr;
        const numerics::BlockScale scale = c.scaling.master;
        store_tile<kEach>(
            {a.data, c.s.count, a.dtype}, tile,
            [&](const auto& master, int j, int64_t i) MP_INLINED {
                master.store(i, is_scaled ? code_value(master.kDType, updated[j], scale.multiply)
                                          : updated[j]);
                updated[j] = decoded(master(i), is_scaled ? &scale.scale_inv : nullptr);
            });
    }

    KOKKOS_FORCEINLINE_FUNCTION void store_weights(const Context& c, const Tile<kEach>& tile,
                                                   const float (&weight)[kEach],
                                                   const float (&delta)[kEach]) const {
        const UpdateSegment& s = c.s;
        if (s.compensation.exists()) {
            return store_compensated(c, tile, weight, delta);
        }
        float updated[kEach] = {};
        tile.for_each([&](int j, int64_t /*i*/) MP_INLINED { updated[j] = weight[j] + delta[j]; });
        if (s.has_remainder()) {
            return store_remainder(s, tile, updated);
        }
        if (s.master.exists()) {
            store_master(c, tile, updated);
        }
        const TileRounding<kEach> roundings = param_rounding(c, tile);
        visit_param(s, c.scaling, [&](const auto& param) MP_INLINED {
            tile.for_each([&](int j, int64_t i)
                              MP_INLINED { param(i, updated[j], roundings.of(j)); });
        });
    }

    template <int kState>
    KOKKOS_FORCEINLINE_FUNCTION void store_state(const Context& c, const Tile<kEach>& tile,
                                                 const float (&values)[kEach]) const {
        const StepArray& a = c.s.states[kState];
        if (kBlocks && has_blocks(a.coding)) {
            tile.for_each([&](int j, int64_t i) MP_INLINED {
                c.later->put(kState, a.coding, static_cast<int>(i - c.tile_start), values[j]);
            });
            return;
        }
        const bool is_scaled = a.scale_inv != nullptr;
        const float multiply = c.scaling.states[kState].multiply;
        const TileRounding<kEach> roundings(a.dtype, op.stochastic_states[kState], c.key,
                                            numerics::state_purpose(kState), c.s.first, tile);
        store_tile<kEach>(
            {a.data, c.s.count, a.dtype}, tile, [&](const auto& to, int j, int64_t i) MP_INLINED {
                to.store(i, is_scaled ? code_value(to.kDType, values[j], multiply) : values[j],
                         roundings.of(j));
            });
    }

    template <class Rule>
    KOKKOS_FORCEINLINE_FUNCTION void update(const Context& c, const typename Rule::Scalars& k,
                                            float grad_mul, const Tile<kEach>& tile) const {
        Elements e{};
        e.template load<Rule>(c.s, tile);
        float delta[kEach] = {};
        tile.for_each([&](int j, int64_t /*i*/)
                          MP_INLINED { delta[j] = e.template delta<Rule>(k, grad_mul, j); });
        store_weights(c, tile, e.weight, delta);
        numerics::for_each_state<Rule>([&](auto state) MP_INLINED {
            constexpr int kState = decltype(state)::kIndex;
            store_state<kState>(c, tile, e.states[kState]);
        });
        if (op.zero_grad) {
            zero(c.s.grad, c.s.count, tile);
        }
    }

    KOKKOS_FORCEINLINE_FUNCTION void zero(const StepArray& grad, int64_t count,
                                          const Tile<kEach>& tile) const {
        store_tile<kEach>({grad.data, count, grad.dtype}, tile,
                          [&](const auto& to, int /*j*/, int64_t i)
                              MP_INLINED { to.store(i, 0.0F); });
    }

    // Of a step that is skipped.
    KOKKOS_FORCEINLINE_FUNCTION void zero_gradients(const TeamOf<Exec>& team) const {
        const Chunk chunk = op.table.chunks[team.league_rank()];
        const UpdateSegment& segment = op.table.segments[chunk.segment];
        const StepArray grad = segment.grad;
        const int64_t count = segment.count;
        const int64_t limit = chunk.start + kChunkElements;
        const int64_t end = limit < count ? limit : count;
        for (int64_t i = chunk.start + team.team_rank(); i < end; i += kEach * team.team_size()) {
            zero(grad, count, {i, team.team_size(), end});
        }
    }

    template <class Rule>
    KOKKOS_FORCEINLINE_FUNCTION void store_blocks_of_tile(const TeamOf<Exec>& team,
                                                          const UpdateSegment& s,
                                                          const numerics::SrKey& key, int64_t i,
                                                          int n, const BlockValues& of) const {
        numerics::for_each_state<Rule>([&](auto state) MP_INLINED {
            constexpr int kState = decltype(state)::kIndex;
            const StepArray& a = s.states[kState];
            store_later(team,
                        {a.format(), a.data, a.scale_inv, numerics::is_signed_state<Rule>(kState),
                         op.stochastic_states[kState], numerics::state_purpose(kState), i,
                         s.first + i, n},
                        of.values[kState], of.largest[kState], key);
        });
        constexpr int kIt = BlockValues::kCompensation;
        store_later(team,
                    {s.compensation.format(), s.compensation.data, s.compensation.scale_inv, true,
                     false, numerics::Purpose::compensation, i, s.first + i, n},
                    of.values[kIt], of.largest[kIt], key);
    }

    KOKKOS_FORCEINLINE_FUNCTION void operator()(const TeamOf<Exec>& team) const {
        if (op.state->skip != 0) {
            if (op.zero_grad) {
                zero_gradients(team);
            }
            return;
        }
        BlockValues* later = nullptr;
        if constexpr (kBlocks) {
            later = static_cast<BlockValues*>(team.team_shmem().get_shmem(std::size_t{kScratch}));
        }
        const Chunk chunk = op.table.chunks[team.league_rank()];
        const UpdateSegment segment = op.table.segments[chunk.segment];
        const UpdateScaling scaling =
            segment.has_scaled_states() ? op.scaling[chunk.segment] : UpdateScaling{};
        const numerics::GroupScalars scalars = op.scalars[segment.group];
        const numerics::SrKey key =
            numerics::make_sr_key(op.seed, segment.uid, static_cast<uint64_t>(op.state->step));
        const int64_t limit = chunk.start + kChunkElements;
        const int64_t end = limit < segment.count ? limit : segment.count;
        const bool waits = kBlocks && has_block_arrays(segment);
        numerics::with_rule(scalars.rule, [&](auto rule) MP_INLINED {
            using Rule = decltype(rule);
            const typename Rule::Scalars k = scalars.as<Rule>();
            for (int64_t i = chunk.start; i < end; i += kTeamTile) {
                const int n = static_cast<int>(end - i < kTeamTile ? end - i : kTeamTile);
                if (waits) {
                    for_each_in_team(team, BlockValues::kArrays * BlockValues::kMost,
                                     [&](int block) { (&later->largest[0][0])[block] = 0; });
                    team.team_barrier();
                }
                const Context c{segment, scaling, key, later, i};
                for (int64_t j = team.team_rank(); j < n; j += kEach * team.team_size()) {
                    update<Rule>(c, k, scalars.grad_mul, {i + j, team.team_size(), i + n});
                }
                if (waits) {
                    team.team_barrier();
                    store_blocks_of_tile<Rule>(team, segment, key, i, n, *later);
                    team.team_barrier();
                }
            }
        });
    }
};

template <class Condition> bool any_segment(const SegmentTable& table, const Condition& condition) {
    for (int64_t i = 0; i < table.segment_count; ++i) {
        if (condition(table.host_segments[i])) {
            return true;
        }
    }
    return false;
}

template <bool kBlocks, class Exec>
void update_chunks(const Exec& exec, const OptimizerUpdateDesc& op) {
    using Update = UpdateTeams<Exec, kBlocks>;
    for_each_team(exec, "mp::update", op.table.chunk_count, Update::kThreads, Update::kScratch,
                  Update{op});
}

template <ScalingStage kStage, class Exec>
void update_scales(const Exec& exec, const OptimizerUpdateDesc& op) {
    for_each(exec, "mp::scales", op.table.segment_count, UpdateScales<kStage>{op});
}

template <class Exec> void optimizer_update(const Exec& exec, const OptimizerUpdateDesc& op) {
    using Measure = MeasureTeams<Exec>;
    const int64_t chunks = op.table.chunk_count;
    const bool has_scales =
        any_segment(op.table, [](const UpdateSegment& s) { return s.has_scaled_states(); });
    if (has_scales) {
        update_scales<ScalingStage::clear>(exec, op);
        for_each_team(exec, "mp::measure", chunks, Measure::kThreads, 0, Measure{op});
        update_scales<ScalingStage::renew>(exec, op);
    }
    if (any_segment(op.table, has_block_arrays)) {
        update_chunks<true>(exec, op);
    } else {
        update_chunks<false>(exec, op);
    }
    if (has_scales) {
        update_scales<ScalingStage::store>(exec, op);
    }
}

} // namespace mp::kernels
