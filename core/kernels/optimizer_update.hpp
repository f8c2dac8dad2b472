// SPDX-License-Identifier: Apache-2.0
// The fused optimizer step as a Kokkos kernel, over the chunks of all segments at once.
#pragma once

#include "kernels/element.hpp"
#include "kernels/exec.hpp"
#include "kernels/update_layout.hpp"
#include "kernels/update_scaling.hpp"
#include "numerics/remainder.hpp"

namespace mp::kernels {

// From this many chunks on, the parameters of a model do not stay in the caches.
inline constexpr int64_t kStreamChunks = (int64_t{8} << 20) / kChunkElements;

// Which chunk of which segment, as a job of the compiled bodies.
inline UpdateJob update_job(const OptimizerUpdateDesc& op, const Chunk& chunk, bool stream) {
    const UpdateSegment& segment = op.table.segments[chunk.segment];
    const int64_t left = segment.count - chunk.start;
    return {&op,
            &segment,
            chunk.start,
            left < kChunkElements ? left : kChunkElements,
            static_cast<uint64_t>(op.state->step),
            stream,
            op.scaling != nullptr ? op.scaling + chunk.segment : nullptr};
}

KOKKOS_INLINE_FUNCTION void raise_all(UpdateScaling& all, const UpdateScaling& here) {
    Kokkos::atomic_max(&all.weight_amax, here.weight_amax);
    for (int k = 0; k < numerics::kMaxStates; ++k) {
        Kokkos::atomic_max(&all.state_amax[k], here.state_amax[k]);
    }
}

struct UpdateChunks {
    OptimizerUpdateDesc op;
    TableOps ops;
    bool stream;

    void operator()(int64_t i) const {
        ops.table->update(update_job(op, op.table.chunks[i], stream));
    }
};

struct MeasureChunks {
    OptimizerUpdateDesc op;
    TableOps ops;

    void operator()(int64_t i) const {
        const Chunk& chunk = op.table.chunks[i];
        if (!op.table.segments[chunk.segment].has_scaled_states()) {
            return;
        }
        UpdateScaling here;
        ops.table->measure_update(update_job(op, chunk, false), here);
        raise_all(op.scaling[chunk.segment], here);
    }
};

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

// The code of one element, and storing one, in every format that ElementFormats promises. They take an array's parts: a
// reference to it would put the whole segment into memory.
KOKKOS_INLINE_FUNCTION float load_code(FormatId format, const void* data, int64_t i) {
    float code = 0.0F;
    NumberFormats::visit(format, [&](auto of) { code = load_as<decltype(of)::kDType>(data, i); });
    return code;
}
KOKKOS_INLINE_FUNCTION void store_code(FormatId format, void* data, int64_t i, float x,
                                       const ElementRounding& rounding = {}) {
    NumberFormats::visit(format,
                         [&](auto of) { store_as<decltype(of)::kDType>(data, i, x, rounding); });
}

// One element in registers: old values first, new ones after the rule.
struct UpdateElement {
    float weight, grad;
    float states[numerics::kMaxStates];

    template <class Rule> KOKKOS_INLINE_FUNCTION void load(const UpdateSegment& s, int64_t i) {
        const auto value = [i](const StepArray& a) {
            return decoded(load_code(format_id(a.format()), a.data, i), a.tensor_scale());
        };
        // Not value(one or the other): that would put the segment into memory.
        weight = s.has_remainder()
                     ? numerics::join_master(static_cast<const uint16_t*>(s.param.data)[i],
                                             static_cast<const int16_t*>(s.master.data)[i])
                 : s.master.exists() ? value(s.master)
                                     : value(s.param);
        grad = value(s.grad);
        numerics::for_each_state<Rule>([&](auto state) {
            constexpr int kState = decltype(state)::kIndex;
            states[kState] = value(s.states[kState]);
        });
    }
};

KOKKOS_INLINE_FUNCTION float code_if(const void* scale_inv, DType dtype, float x,
                                     const numerics::BlockScale& scale) {
    return scale_inv != nullptr ? code_value(dtype, x, scale.multiply) : x;
}

template <class Exec> struct UpdateTeams {
    static constexpr int kThreads = 256;

    OptimizerUpdateDesc op;

    // The parameter's new value, stored; returns it as it is now, where it has no scale.
    KOKKOS_INLINE_FUNCTION float store_param(const UpdateSegment& s, const UpdateScaling& scaling,
                                             int64_t i, float x,
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

    KOKKOS_INLINE_FUNCTION void store_weight(const UpdateSegment& s, const UpdateScaling& scaling,
                                             const ElementRounding& of_param, int64_t i,
                                             float weight, float delta) const {
        if (s.compensation.exists()) {
            const FormatId format = format_id(s.compensation.format());
            float carry = load_code(format, s.compensation.data, i);
            numerics::compensated_add(weight, delta, carry, [&](float x) {
                return store_param(s, scaling, i, x, of_param);
            });
            store_code(format, s.compensation.data, i, carry);
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

    template <class Rule>
    KOKKOS_INLINE_FUNCTION void update(const UpdateSegment& s, const UpdateScaling& scaling,
                                       const typename Rule::Scalars& k, float grad_mul,
                                       const numerics::SrKey& key, int64_t i) const {
        using numerics::Purpose;
        const int64_t element = s.first + i; // of the parameter
        UpdateElement e{};
        e.load<Rule>(s, i);
        const float delta = Rule::delta(k, e.weight, e.grad * grad_mul, e.states);
        store_weight(
            s, scaling,
            element_rounding(s.param.dtype, op.stochastic_param, key, Purpose::param, element), i,
            e.weight, delta);
        numerics::for_each_state<Rule>([&](auto state) {
            constexpr int kState = decltype(state)::kIndex;
            const StepArray& a = s.states[kState];
            store_code(format_id(a.format()), a.data, i,
                       code_if(a.scale_inv, a.dtype, e.states[kState], scaling.states[kState]),
                       element_rounding(a.dtype, op.stochastic_states[kState], key,
                                        numerics::state_purpose(kState), element));
        });
        if (op.zero_grad) {
            store_code(format_id(s.grad.format()), s.grad.data, i, 0.0F);
        }
    }

    KOKKOS_INLINE_FUNCTION void operator()(const TeamOf<Exec>& team) const {
        if (op.state->skip != 0) {
            return;
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
        numerics::with_rule(scalars.rule, [&](auto rule) {
            using Rule = decltype(rule);
            const typename Rule::Scalars k = scalars.as<Rule>();
            for (int64_t i = chunk.start + team.team_rank(); i < end; i += kThreads) {
                update<Rule>(segment, scaling, k, scalars.grad_mul, key, i);
            }
        });
    }
};

// The first pass over segments with scaled states: maxima only.
template <class Exec> struct MeasureTeams {
    static constexpr int kThreads = 256;

    OptimizerUpdateDesc op;

    static KOKKOS_INLINE_FUNCTION void raise(uint32_t& largest, float x) {
        const uint32_t magnitude = numerics::bits_from_float(x) & numerics::kFloatMagnitudeMask;
        largest = magnitude > largest ? magnitude : largest;
    }

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
            for (int64_t i = chunk.start + team.team_rank(); i < end; i += kThreads) {
                UpdateElement e{};
                e.load<Rule>(segment, i);
                const float delta = Rule::delta(k, e.weight, e.grad * scalars.grad_mul, e.states);
                raise(here.weight_amax, e.weight + delta);
                numerics::for_each_state<Rule>([&](auto state) {
                    constexpr int kState = decltype(state)::kIndex;
                    raise(here.state_amax[kState], e.states[kState]);
                });
            }
        });
        raise_all(op.scaling[chunk.segment], here);
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

template <class Exec>
void update_scales(const Exec& exec, ScalingStage stage, const OptimizerUpdateDesc& op) {
    const int64_t segments = op.table.segment_count;
    const auto each = [&exec, segments](const auto& functor) {
        if constexpr (kIsHost<Exec>) { // too little to wake a thread for
            for (int64_t i = 0; i < segments; ++i) {
                functor(i);
            }
        } else {
            for_each(exec, "mp::scales", segments, functor);
        }
    };
    switch (stage) {
    case ScalingStage::clear:
        return each(UpdateScales<ScalingStage::clear>{op});
    case ScalingStage::renew:
        return each(UpdateScales<ScalingStage::renew>{op});
    case ScalingStage::store:
        return each(UpdateScales<ScalingStage::store>{op});
    }
}

// One pass over all chunks: the maxima, or the step itself.
template <class Exec, class Ops>
void update_pass(const Exec& exec, const Ops& ops, bool measure, const OptimizerUpdateDesc& op) {
    const int64_t chunks = op.table.chunk_count;
    if constexpr (kIsHost<Exec>) {
        if (measure) {
            for_each(exec, "mp::measure", chunks, MeasureChunks{op, ops});
        } else {
            for_each(exec, "mp::update", chunks, UpdateChunks{op, ops, chunks >= kStreamChunks});
        }
    } else if (measure) {
        using Teams = MeasureTeams<Exec>;
        for_each_team(exec, "mp::measure", chunks, Teams::kThreads, 0, Teams{op});
    } else {
        using Teams = UpdateTeams<Exec>;
        for_each_team(exec, "mp::update", chunks, Teams::kThreads, 0, Teams{op});
    }
}

template <class Exec, class Ops>
void optimizer_update(const Exec& exec, const Ops& ops, const OptimizerUpdateDesc& op) {
    if constexpr (kIsHost<Exec>) {
        if (op.state->skip != 0) {
            return;
        }
    }
    if (!any_scaled_states(op.table)) {
        return update_pass(exec, ops, false, op);
    }
    update_scales(exec, ScalingStage::clear, op);
    update_pass(exec, ops, true, op);
    update_scales(exec, ScalingStage::renew, op);
    update_pass(exec, ops, false, op);
    update_scales(exec, ScalingStage::store, op);
}

} // namespace mp::kernels
