// SPDX-License-Identifier: Apache-2.0
// The fused AdamW step as a Kokkos kernel, over the chunks of all segments at once.
#pragma once

#include "kernels/adamw_scaling.hpp"
#include "kernels/element.hpp"
#include "kernels/exec.hpp"
#include "numerics/remainder.hpp"

namespace mp::kernels {

// From this many chunks on, the parameters of a model do not stay in the caches.
inline constexpr int64_t kStreamChunks = (int64_t{8} << 20) / kChunkElements;

// Which chunk of which segment, as a job of the compiled bodies.
inline AdamwJob adamw_job(const AdamwDesc& op, const Chunk& chunk, bool stream) {
    const AdamwSegment& segment = op.table.segments[chunk.segment];
    const int64_t left = segment.count - chunk.start;
    return {&op,
            &segment,
            chunk.start,
            left < kChunkElements ? left : kChunkElements,
            static_cast<uint64_t>(op.state->step),
            stream,
            op.scaling != nullptr ? op.scaling + chunk.segment : nullptr};
}

struct AdamwChunks {
    AdamwDesc op;
    TableOps ops;
    bool stream;

    void operator()(int64_t i) const {
        ops.table->adamw(adamw_job(op, op.table.chunks[i], stream));
    }
};

struct AdamwMeasureChunks {
    AdamwDesc op;
    TableOps ops;

    void operator()(int64_t i) const {
        const Chunk& chunk = op.table.chunks[i];
        if (!op.table.segments[chunk.segment].has_scaled_states()) {
            return;
        }
        AdamwScaling here;
        ops.table->adamw_measure(adamw_job(op, chunk, false), here);
        AdamwScaling& all = op.scaling[chunk.segment];
        Kokkos::atomic_max(&all.weight_amax, here.weight_amax);
        Kokkos::atomic_max(&all.exp_avg_amax, here.exp_avg_amax);
        Kokkos::atomic_max(&all.exp_avg_sq_amax, here.exp_avg_sq_amax);
    }
};

// What happens to each segment before, between and after the two passes.
enum class ScalingStage { clear, renew, store };

template <ScalingStage kStage> struct AdamwScales {
    AdamwDesc op;

    KOKKOS_INLINE_FUNCTION void operator()(int64_t i) const {
        const AdamwSegment& segment = op.table.segments[i];
        if (op.state->skip != 0 || !segment.has_scaled_states()) {
            return;
        }
        if constexpr (kStage == ScalingStage::clear) {
            op.scaling[i] = AdamwScaling{};
        } else if constexpr (kStage == ScalingStage::renew) {
            renew_scales(segment, op.scaling[i]);
        } else {
            store_scales(segment, op.scaling[i]);
        }
    }
};

// One element in registers: old values first, new ones after update().
struct AdamwElement {
    float weight, grad, m, v;

    KOKKOS_INLINE_FUNCTION void load(const AdamwSegment& s, int64_t i) {
        weight = s.has_remainder() ? numerics::join_master(static_cast<const uint16_t*>(s.param)[i],
                                                           static_cast<const int16_t*>(s.master)[i])
                 : s.master_dtype != DType::none
                     ? decoded(load_element(s.master_dtype, s.master, i), s.master_scale_inv)
                     : decoded(load_element(s.param_dtype, s.param, i), s.param_scale_inv);
        grad = decoded(load_element(s.grad_dtype, s.grad, i), s.grad_scale_inv);
        m = decoded(load_element(s.exp_avg_dtype, s.exp_avg, i), s.exp_avg_scale());
        v = decoded(load_element(s.exp_avg_sq_dtype, s.exp_avg_sq, i), s.exp_avg_sq_scale());
    }
};

KOKKOS_INLINE_FUNCTION float code_if(const float* scale_inv, DType dtype, float x,
                                     const numerics::BlockScale& scale) {
    return scale_inv != nullptr ? code_value(dtype, x, scale.multiply) : x;
}

template <class Exec> struct AdamwTeams {
    static constexpr int kThreads = 256;

    AdamwDesc op;

    // The parameter's new value, stored; returns it as it is now, where it has no scale.
    KOKKOS_INLINE_FUNCTION float store_param(const AdamwSegment& s, const AdamwScaling& scaling,
                                             int64_t i, float x,
                                             const ElementRounding& rounding) const {
        if (s.param_half_away != 0) {
            static_cast<uint16_t*>(s.param)[i] = numerics::bf16_half_away(x);
            return x; // the master weight is kept whole, so nobody asks
        }
        store_element(s.param_dtype, s.param, i,
                      code_if(s.param_scale_inv, s.param_dtype, x, scaling.param), rounding);
        return load_element(s.param_dtype, s.param, i);
    }

    KOKKOS_INLINE_FUNCTION void store_weight(const AdamwSegment& s, const AdamwScaling& scaling,
                                             const ElementRounding& of_param, int64_t i,
                                             float weight, float delta) const {
        if (s.compensation_dtype != DType::none) {
            float carry = load_element(s.compensation_dtype, s.compensation, i);
            numerics::compensated_add(weight, delta, carry, [&](float x) {
                return store_param(s, scaling, i, x, of_param);
            });
            store_element(s.compensation_dtype, s.compensation, i, carry);
            return;
        }
        float updated = weight + delta;
        if (s.has_remainder()) {
            const numerics::SplitMaster split = numerics::split_master(updated);
            static_cast<uint16_t*>(s.param)[i] = split.param;
            static_cast<int16_t*>(s.master)[i] = split.remainder;
            return;
        }
        if (s.master_dtype != DType::none) {
            store_element(s.master_dtype, s.master, i,
                          code_if(s.master_scale_inv, s.master_dtype, updated, scaling.master));
            updated = decoded(load_element(s.master_dtype, s.master, i),
                              s.master_scale_inv != nullptr ? &scaling.master.scale_inv : nullptr);
        }
        store_param(s, scaling, i, updated, of_param);
    }

    KOKKOS_INLINE_FUNCTION void update(const AdamwSegment& s, const AdamwScaling& scaling,
                                       const numerics::AdamwScalars& scalars,
                                       const numerics::SrKey& key, int64_t i) const {
        using numerics::Purpose;
        const int64_t element = s.first + i; // of the parameter
        AdamwElement e{};
        e.load(s, i);
        const float delta = numerics::rule_delta(scalars, e.weight, e.grad, e.m, e.v);
        store_weight(
            s, scaling,
            element_rounding(s.param_dtype, op.stochastic_param, key, Purpose::param, element), i,
            e.weight, delta);
        store_element(s.exp_avg_dtype, s.exp_avg, i,
                      code_if(s.exp_avg_scale(), s.exp_avg_dtype, e.m, scaling.exp_avg),
                      element_rounding(s.exp_avg_dtype, op.stochastic_exp_avg, key,
                                       Purpose::exp_avg, element));
        store_element(s.exp_avg_sq_dtype, s.exp_avg_sq, i,
                      code_if(s.exp_avg_sq_scale(), s.exp_avg_sq_dtype, e.v, scaling.exp_avg_sq),
                      element_rounding(s.exp_avg_sq_dtype, op.stochastic_exp_avg_sq, key,
                                       Purpose::exp_avg_sq, element));
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
        const AdamwScaling scaling =
            segment.has_scaled_states() ? op.scaling[chunk.segment] : AdamwScaling{};
        const numerics::AdamwScalars scalars = op.scalars[segment.group];
        const numerics::SrKey key =
            numerics::make_sr_key(op.seed, segment.uid, static_cast<uint64_t>(op.state->step));
        const int64_t limit = chunk.start + kChunkElements;
        const int64_t end = limit < segment.count ? limit : segment.count;
        for (int64_t i = chunk.start + team.team_rank(); i < end; i += kThreads) {
            update(segment, scaling, scalars, key, i);
        }
    }
};

// The first pass over segments with scaled states: maxima only.
template <class Exec> struct AdamwMeasureTeams {
    static constexpr int kThreads = 256;

    AdamwDesc op;

    static KOKKOS_INLINE_FUNCTION void raise(uint32_t& largest, float x) {
        const uint32_t magnitude = numerics::bits_from_float(x) & numerics::kFloatMagnitudeMask;
        largest = magnitude > largest ? magnitude : largest;
    }

    KOKKOS_INLINE_FUNCTION void operator()(const TeamOf<Exec>& team) const {
        const Chunk chunk = op.table.chunks[team.league_rank()];
        const AdamwSegment segment = op.table.segments[chunk.segment];
        if (op.state->skip != 0 || !segment.has_scaled_states()) {
            return;
        }
        const numerics::AdamwScalars scalars = op.scalars[segment.group];
        const int64_t limit = chunk.start + kChunkElements;
        const int64_t end = limit < segment.count ? limit : segment.count;
        AdamwScaling here{};
        for (int64_t i = chunk.start + team.team_rank(); i < end; i += kThreads) {
            AdamwElement e{};
            e.load(segment, i);
            const float delta = numerics::rule_delta(scalars, e.weight, e.grad, e.m, e.v);
            raise(here.weight_amax, e.weight + delta);
            raise(here.exp_avg_amax, e.m);
            raise(here.exp_avg_sq_amax, e.v);
        }
        AdamwScaling& all = op.scaling[chunk.segment];
        Kokkos::atomic_max(&all.weight_amax, here.weight_amax);
        Kokkos::atomic_max(&all.exp_avg_amax, here.exp_avg_amax);
        Kokkos::atomic_max(&all.exp_avg_sq_amax, here.exp_avg_sq_amax);
    }
};

inline bool any_scaled_states(const SegmentTable& table) {
    for (int64_t i = 0; i < table.segment_count; ++i) {
        if (table.host_segments[i].has_scaled_states()) {
            return true;
        }
    }
    return false;
}

template <class Exec> void adamw_scales(const Exec& exec, ScalingStage stage, const AdamwDesc& op) {
    const int64_t segments = op.table.segment_count;
    const auto each = [&exec, segments](const auto& functor) {
        if constexpr (kIsHost<Exec>) { // too little to wake a thread for
            for (int64_t i = 0; i < segments; ++i) {
                functor(i);
            }
        } else {
            for_each(exec, "mp::adamw_scales", segments, functor);
        }
    };
    switch (stage) {
    case ScalingStage::clear:
        return each(AdamwScales<ScalingStage::clear>{op});
    case ScalingStage::renew:
        return each(AdamwScales<ScalingStage::renew>{op});
    case ScalingStage::store:
        return each(AdamwScales<ScalingStage::store>{op});
    }
}

// One pass over all chunks: the maxima, or the step itself.
template <class Exec, class Ops>
void adamw_pass(const Exec& exec, const Ops& ops, bool measure, const AdamwDesc& op) {
    const int64_t chunks = op.table.chunk_count;
    if constexpr (kIsHost<Exec>) {
        if (measure) {
            for_each(exec, "mp::adamw_measure", chunks, AdamwMeasureChunks{op, ops});
        } else {
            for_each(exec, "mp::adamw", chunks, AdamwChunks{op, ops, chunks >= kStreamChunks});
        }
    } else if (measure) {
        using Teams = AdamwMeasureTeams<Exec>;
        for_each_team(exec, "mp::adamw_measure", chunks, Teams::kThreads, 0, Teams{op});
    } else {
        using Teams = AdamwTeams<Exec>;
        for_each_team(exec, "mp::adamw", chunks, Teams::kThreads, 0, Teams{op});
    }
}

template <class Exec, class Ops> void adamw(const Exec& exec, const Ops& ops, const AdamwDesc& op) {
    if constexpr (kIsHost<Exec>) {
        if (op.state->skip != 0) {
            return;
        }
    }
    if (!any_scaled_states(op.table)) {
        return adamw_pass(exec, ops, false, op);
    }
    adamw_scales(exec, ScalingStage::clear, op);
    adamw_pass(exec, ops, true, op);
    adamw_scales(exec, ScalingStage::renew, op);
    adamw_pass(exec, ops, false, op);
    adamw_scales(exec, ScalingStage::store, op);
}

} // namespace mp::kernels
