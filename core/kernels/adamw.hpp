// SPDX-License-Identifier: Apache-2.0
// The fused AdamW step as a Kokkos kernel, over the chunks of all segments at once.
#pragma once

#include "kernels/element.hpp"
#include "kernels/exec.hpp"

namespace mp::kernels {

// From this many chunks on, the parameters of a model do not stay in the caches.
inline constexpr int64_t kStreamChunks = (int64_t{8} << 20) / kChunkElements;

struct AdamwChunks {
    AdamwDesc op;
    TableOps ops;
    bool stream;

    void operator()(int64_t i) const {
        const Chunk& chunk = op.table.chunks[i];
        const AdamwSegment& segment = op.table.segments[chunk.segment];
        const int64_t left = segment.count - chunk.start;
        ops.table->adamw({&op, &segment, chunk.start, left < kChunkElements ? left : kChunkElements,
                          static_cast<uint64_t>(op.state->step), stream});
    }
};

template <class Exec> struct AdamwTeams {
    static constexpr int kThreads = 256;

    AdamwDesc op;

    // The parameter's new value, stored; returns it as it is now.
    KOKKOS_INLINE_FUNCTION float store_param(const AdamwSegment& s, int64_t i, float x,
                                             const ElementRounding& rounding) const {
        store_element(s.param_dtype, s.param, i, x, rounding);
        return load_element(s.param_dtype, s.param, i);
    }

    KOKKOS_INLINE_FUNCTION void update(const AdamwSegment& s, const numerics::AdamwScalars& scalars,
                                       const numerics::SrKey& key, int64_t i) const {
        using numerics::Purpose;
        const bool has_master = s.master_dtype != DType::none;
        const float grad = load_element(s.grad_dtype, s.grad, i);
        const float weight = has_master ? load_element(s.master_dtype, s.master, i)
                                        : load_element(s.param_dtype, s.param, i);
        float m = load_element(s.exp_avg_dtype, s.exp_avg, i);
        float v = load_element(s.exp_avg_sq_dtype, s.exp_avg_sq, i);
        const float delta = numerics::adamw_delta(scalars, weight, grad, m, v);
        const ElementRounding of_param =
            element_rounding(s.param_dtype, op.stochastic_param, key, Purpose::param, i);
        if (s.compensation_dtype != DType::none) {
            float carry = load_element(s.compensation_dtype, s.compensation, i);
            numerics::compensated_add(weight, delta, carry,
                                      [&](float x) { return store_param(s, i, x, of_param); });
            store_element(s.compensation_dtype, s.compensation, i, carry);
        } else {
            const float updated = weight + delta;
            if (has_master) {
                store_element(s.master_dtype, s.master, i, updated);
            }
            store_element(s.param_dtype, s.param, i, updated, of_param);
        }
        store_element(
            s.exp_avg_dtype, s.exp_avg, i, m,
            element_rounding(s.exp_avg_dtype, op.stochastic_exp_avg, key, Purpose::exp_avg, i));
        store_element(s.exp_avg_sq_dtype, s.exp_avg_sq, i, v,
                      element_rounding(s.exp_avg_sq_dtype, op.stochastic_exp_avg_sq, key,
                                       Purpose::exp_avg_sq, i));
        if (op.zero_grad) {
            store_element(s.grad_dtype, s.grad, i, 0.0F);
        }
    }

    KOKKOS_INLINE_FUNCTION void operator()(const TeamOf<Exec>& team) const {
        if (op.state->skip != 0) {
            return;
        }
        const Chunk chunk = op.table.chunks[team.league_rank()];
        const AdamwSegment segment = op.table.segments[chunk.segment];
        const numerics::AdamwScalars scalars = op.scalars[segment.group];
        const numerics::SrKey key =
            numerics::make_sr_key(op.seed, segment.uid, static_cast<uint64_t>(op.state->step));
        const int64_t limit = chunk.start + kChunkElements;
        const int64_t end = limit < segment.count ? limit : segment.count;
        for (int64_t i = chunk.start + team.team_rank(); i < end; i += kThreads) {
            update(segment, scalars, key, i);
        }
    }
};

template <class Exec, class Ops> void adamw(const Exec& exec, const Ops& ops, const AdamwDesc& op) {
    if constexpr (kIsHost<Exec>) {
        if (op.state->skip == 0) {
            const bool stream = op.table.chunk_count >= kStreamChunks;
            for_each(exec, "mp::adamw", op.table.chunk_count, AdamwChunks{op, ops, stream});
        }
    } else {
        using Teams = AdamwTeams<Exec>;
        for_each_team(exec, "mp::adamw", op.table.chunk_count, Teams::kThreads, 0, Teams{op});
    }
}

} // namespace mp::kernels
