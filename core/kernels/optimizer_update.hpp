// SPDX-License-Identifier: Apache-2.0
// The fused optimizer step as a Kokkos kernel, over the chunks of all segments at once.
#pragma once

#include "interface/update_scaling.hpp"
#include "kernels/amax.hpp"
#include "kernels/element.hpp"
#include "kernels/exec.hpp"
#include "numerics/block_state.hpp"
#include "numerics/remainder.hpp"

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

// body(Format<...>{}) of a format whose elements are numbers by themselves; no remainder, which is a part of its parameter.
template <class Body> KOKKOS_INLINE_FUNCTION void visit_number(FormatId format, const Body& body) {
    AllFormats::visit(format, [&](auto of) {
        constexpr Coding kCoding = decltype(of)::kCoding;
        if constexpr (kCoding == Coding::plain || kCoding == Coding::scaled) {
            body(of);
        }
    });
}
template <class Body> KOKKOS_INLINE_FUNCTION void visit_blocks(FormatId format, const Body& body) {
    AllFormats::visit(format, [&](auto of) {
        if constexpr (has_blocks(decltype(of)::kCoding)) {
            body(of);
        }
    });
}

// The code of one element, and storing one. They take an array's parts: a reference to it would put the whole segment into
// memory.
KOKKOS_INLINE_FUNCTION float load_code(FormatId format, const void* data, int64_t i) {
    float code = 0.0F;
    visit_number(format, [&](auto of) { code = load_as<decltype(of)::kDType>(data, i); });
    return code;
}
KOKKOS_INLINE_FUNCTION void store_code(FormatId format, void* data, int64_t i, float x,
                                       const ElementRounding& rounding = {}) {
    visit_number(format, [&](auto of) { store_as<decltype(of)::kDType>(data, i, x, rounding); });
}
template <bool kBlocks>
KOKKOS_FORCEINLINE_FUNCTION float load_value(FormatId format, const void* data, const void* scales,
                                             bool is_signed, int64_t i) {
    float value = 0.0F;
    if (kBlocks && has_blocks(format_of(format).coding)) {
        visit_blocks(format, [&](auto of) {
            value = numerics::load_block_value(decltype(of)::kCoding, is_signed, data, scales, i);
        });
    } else {
        value = decoded(load_code(format, data, i), static_cast<const float*>(scales));
    }
    return value;
}

// One element in registers: old values first, new ones after the rule. kBlocks: states may be kept in blocks.
template <bool kBlocks> struct UpdateElement {
    float weight, grad;
    float states[numerics::kMaxStates];

    template <class Rule> KOKKOS_FORCEINLINE_FUNCTION void load(const UpdateSegment& s, int64_t i) {
        const auto value = [i](const StepArray& a, bool is_signed) {
            return load_value<kBlocks>(format_id(a.format()), a.data, a.scale_inv, is_signed, i);
        };
        // Not value(one or the other): that would put the segment into memory.
        weight = s.has_remainder()
                     ? numerics::join_master(static_cast<const uint16_t*>(s.param.data)[i],
                                             static_cast<const int16_t*>(s.master.data)[i])
                 : s.master.exists() ? value(s.master, true)
                                     : value(s.param, true);
        grad = value(s.grad, true);
        numerics::for_each_state<Rule>([&](auto state) {
            constexpr int kState = decltype(state)::kIndex;
            states[kState] = value(s.states[kState], numerics::is_signed_state<Rule>(kState));
        });
    }
};

KOKKOS_INLINE_FUNCTION float code_if(const void* scale_inv, DType dtype, float x,
                                     const numerics::BlockScale& scale) {
    return scale_inv != nullptr ? code_value(dtype, x, scale.multiply) : x;
}

// Elements that a team steps at once. A whole number of blocks of every kind: their scales are known when all of them are.
inline constexpr int kUpdateTile = static_cast<int>(kLargestBlock);

// A tile's new values of the arrays that are kept in blocks, and the largest magnitude of each block.
struct BlockValues {
    static constexpr int kCompensation = numerics::kMaxStates; // behind the states
    static constexpr int kArrays = kCompensation + 1;
    static constexpr int kMost = kUpdateTile / 32; // blocks in a tile

    float values[kArrays][kUpdateTile];
    uint32_t largest[kArrays][kMost];

    // Element j of the tile.
    KOKKOS_INLINE_FUNCTION void put(int array, Coding coding, int j, float x) {
        values[array][j] = x;
        Kokkos::atomic_max(&largest[array][j / static_cast<int>(block_size(coding))],
                           numerics::bits_from_float(x) & numerics::kFloatMagnitudeMask);
    }
};

KOKKOS_INLINE_FUNCTION bool has_block_arrays(const UpdateSegment& s) {
    static_assert(numerics::kMaxStates == 2);
    return has_blocks(s.states[0].coding) || has_blocks(s.states[1].coding) ||
           has_blocks(s.compensation.coding);
}

// The step. Without blocks (kBlocks) there are fewer registers and no barriers.
template <class Exec, bool kBlocks> struct UpdateTeams {
    static constexpr int kThreads = kUpdateTile;
    static constexpr std::size_t kScratch = kBlocks ? sizeof(BlockValues) : 0;

    OptimizerUpdateDesc op;

    // The parameter's new value, stored; returns it as it is now, where it has no scale.
    KOKKOS_FORCEINLINE_FUNCTION float store_param(const UpdateSegment& s,
                                                  const UpdateScaling& scaling, int64_t i, float x,
                                                  const ElementRounding& rounding) const {
        if (s.param_half_away != 0) {
            static_cast<uint16_t*>(s.param.data)[i] = numerics::bf16_half_away(x);
            return x; // the master weight is kept whole, so nobody asks
        }
        const FormatId format = format_id(s.param.format());
        store_code(format, s.param.data, i,
                   code_if(s.param.scale_inv, s.param.dtype, x, scaling.param), rounding);
        return load_code(format, s.param.data, i);
    }

    KOKKOS_FORCEINLINE_FUNCTION void store_weight(const UpdateSegment& s,
                                                  const UpdateScaling& scaling,
                                                  const ElementRounding& of_param, int64_t i, int j,
                                                  float weight, float delta,
                                                  BlockValues* later) const {
        if (s.compensation.exists()) {
            const FormatId format = format_id(s.compensation.format());
            float carry =
                load_value<kBlocks>(format, s.compensation.data, s.compensation.scale_inv, true, i);
            numerics::compensated_add(weight, delta, carry, [&](float x) {
                return store_param(s, scaling, i, x, of_param);
            });
            if (kBlocks && has_blocks(s.compensation.coding)) {
                later->put(BlockValues::kCompensation, s.compensation.coding, j, carry);
            } else {
                store_code(format, s.compensation.data, i, carry);
            }
            return;
        }
        float updated = weight + delta;
        if (s.has_remainder()) {
            const numerics::SplitMaster split = numerics::split_master(updated);
            static_cast<uint16_t*>(s.param.data)[i] = split.param;
            static_cast<int16_t*>(s.master.data)[i] = split.remainder;
            return;
        }
        if (s.master.exists()) {
            const FormatId format = format_id(s.master.format());
            store_code(format, s.master.data, i,
                       code_if(s.master.scale_inv, s.master.dtype, updated, scaling.master));
            updated = decoded(load_code(format, s.master.data, i),
                              s.master.scale_inv != nullptr ? &scaling.master.scale_inv : nullptr);
        }
        store_param(s, scaling, i, updated, of_param);
    }

    // Element j of the tile, i of the segment. What is kept in blocks waits for their scales.
    template <class Rule>
    KOKKOS_FORCEINLINE_FUNCTION void
    update(const UpdateSegment& s, const UpdateScaling& scaling, const typename Rule::Scalars& k,
           float grad_mul, const numerics::SrKey& key, int64_t i, int j, BlockValues* later) const {
        using numerics::Purpose;
        const int64_t element = s.first + i; // of the parameter
        UpdateElement<kBlocks> e{};
        e.template load<Rule>(s, i);
        const float delta = Rule::delta(k, e.weight, e.grad * grad_mul, e.states);
        store_weight(
            s, scaling,
            element_rounding(s.param.dtype, op.stochastic_param, key, Purpose::param, element), i,
            j, e.weight, delta, later);
        numerics::for_each_state<Rule>([&](auto state) {
            constexpr int kState = decltype(state)::kIndex;
            const StepArray& a = s.states[kState];
            if (kBlocks && has_blocks(a.coding)) {
                later->put(kState, a.coding, j, e.states[kState]);
                return;
            }
            store_code(format_id(a.format()), a.data, i,
                       code_if(a.scale_inv, a.dtype, e.states[kState], scaling.states[kState]),
                       element_rounding(a.dtype, op.stochastic_states[kState], key,
                                        numerics::state_purpose(kState), element));
        });
        if (op.zero_grad) {
            store_code(format_id(s.grad.format()), s.grad.data, i, 0.0F);
        }
    }

    // One array kept in blocks, of which it is told the parts: the elements of a tile of n, which begins at element i.
    struct BlockStore {
        FormatId format;
        void* codes;
        void* scales;
        bool is_signed, stochastic;
        numerics::Purpose purpose;
        int64_t i, element;
        int n;
    };
    template <Coding kCoding>
    static KOKKOS_FORCEINLINE_FUNCTION int32_t block_code(const BlockStore& to, float x,
                                                          float divisor, const numerics::SrKey& key,
                                                          int j) {
        if constexpr (!StateFormat(block_layout(kCoding).codes, kCoding).is_map()) {
            if (to.stochastic) {
                const float quotient = numerics::e4m3_quotient(to.is_signed, x, divisor);
                return numerics::Codec<DType::fp8_e4m3>::store_sr(
                    code_value(DType::fp8_e4m3, quotient, 1.0F),
                    numerics::sr_bits32_at(key, to.purpose, static_cast<uint64_t>(to.element + j)));
            }
        }
        return numerics::BlockCodec<kCoding>::code(to.is_signed, x, divisor);
    }
    template <Coding kCoding>
    static KOKKOS_FORCEINLINE_FUNCTION void
    store_blocks(const TeamOf<Exec>& team, const BlockStore& to, const float* values,
                 const uint32_t* largest, const numerics::SrKey& key) {
        constexpr int kSize = static_cast<int>(block_size(kCoding));
        // Two codes of a byte are stored by one thread.
        constexpr int kEach = block_layout(kCoding).bits == 4 ? 2 : 1;
        for_each_in_team(team, (to.n + kEach - 1) / kEach, [&](int pair) {
            const int j = pair * kEach;
            const numerics::MomentScale scale = numerics::BlockCodec<kCoding>::scales(
                to.is_signed, numerics::float_from_bits(largest[j / kSize]));
            if (j % kSize == 0) {
                numerics::store_block_scale(kCoding, to.scales, (to.i + j) / kSize, scale.stored);
            }
            for (int one = j; one < j + kEach && one < to.n; ++one) {
                numerics::store_block_code(
                    kCoding, to.codes, to.i + one,
                    block_code<kCoding>(to, values[one], scale.divisor, key, one));
            }
        });
    }
    static KOKKOS_FORCEINLINE_FUNCTION void store_later(const TeamOf<Exec>& team,
                                                        const BlockStore& to, const float* values,
                                                        const uint32_t* largest,
                                                        const numerics::SrKey& key) {
        visit_blocks(to.format, [&](auto of) {
            store_blocks<decltype(of)::kCoding>(team, to, values, largest, key);
        });
    }

    template <class Rule>
    KOKKOS_FORCEINLINE_FUNCTION void store_tile(const TeamOf<Exec>& team, const UpdateSegment& s,
                                                const numerics::SrKey& key, int64_t i, int n,
                                                const BlockValues& of) const {
        numerics::for_each_state<Rule>([&](auto state) {
            constexpr int kState = decltype(state)::kIndex;
            const StepArray& a = s.states[kState];
            store_later(team,
                        {format_id(a.format()), a.data, a.scale_inv,
                         numerics::is_signed_state<Rule>(kState), op.stochastic_states[kState],
                         numerics::state_purpose(kState), i, s.first + i, n},
                        of.values[kState], of.largest[kState], key);
        });
        constexpr int kIt = BlockValues::kCompensation;
        store_later(team,
                    {format_id(s.compensation.format()), s.compensation.data,
                     s.compensation.scale_inv, true, false, numerics::Purpose::compensation, i,
                     s.first + i, n},
                    of.values[kIt], of.largest[kIt], key);
    }

    KOKKOS_INLINE_FUNCTION void operator()(const TeamOf<Exec>& team) const {
        if (op.state->skip != 0) {
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
        numerics::with_rule(scalars.rule, [&](auto rule) {
            using Rule = decltype(rule);
            const typename Rule::Scalars k = scalars.as<Rule>();
            for (int64_t i = chunk.start; i < end; i += kUpdateTile) {
                const int n = static_cast<int>(end - i < kUpdateTile ? end - i : kUpdateTile);
                if (waits) {
                    for_each_in_team(team, BlockValues::kArrays * BlockValues::kMost,
                                     [&](int block) { (&later->largest[0][0])[block] = 0; });
                    team.team_barrier();
                }
                for_each_in_team(team, n, [&](int j) {
                    update<Rule>(segment, scaling, k, scalars.grad_mul, key, i + j, j, later);
                });
                if (waits) {
                    team.team_barrier();
                    store_tile<Rule>(team, segment, key, i, n, *later);
                    team.team_barrier();
                }
            }
        });
    }
};

// The first pass over segments with scaled states: maxima only.
template <class Exec> struct MeasureTeams {
    static constexpr int kThreads = 256;

    OptimizerUpdateDesc op;

    KOKKOS_INLINE_FUNCTION void operator()(const TeamOf<Exec>& team) const {
        const Chunk chunk = op.table.chunks[team.league_rank()];
        const UpdateSegment segment = op.table.segments[chunk.segment];
        if (op.state->skip != 0 || !segment.has_scaled_states()) {
            return;
        }
        const numerics::GroupScalars scalars = op.scalars[segment.group];
        const int64_t limit = chunk.start + kChunkElements;
        const int64_t end = limit < segment.count ? limit : segment.count;
        UpdateScaling here{};
        numerics::with_rule(scalars.rule, [&](auto rule) {
            using Rule = decltype(rule);
            const typename Rule::Scalars k = scalars.as<Rule>();
            for (int64_t i = chunk.start + team.team_rank(); i < end; i += team.team_size()) {
                UpdateElement<true> e{};
                e.template load<Rule>(segment, i);
                const float delta = Rule::delta(k, e.weight, e.grad * scalars.grad_mul, e.states);
                here.weight_amax = larger_magnitude(here.weight_amax, e.weight + delta);
                numerics::for_each_state<Rule>([&](auto state) {
                    constexpr int kState = decltype(state)::kIndex;
                    here.state_amax[kState] =
                        larger_magnitude(here.state_amax[kState], e.states[kState]);
                });
            }
        });
        raise_all(op.scaling[chunk.segment], here);
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
