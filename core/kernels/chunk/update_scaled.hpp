// SPDX-License-Identifier: Apache-2.0
// The fused optimizer step of one chunk where arrays hold codes with scales. Everything goes through
// tiles of fp32, also what is fp32 already, because the first of the two passes must not change
// what the second reads.
#pragma once

#include "kernels/chunk/amax.hpp"
#include "kernels/chunk/jobs.hpp"
#include "kernels/chunk/state_blocks.hpp"
#include "kernels/chunk/update_streams.hpp"
#include "kernels/update_scaling.hpp"
#include "numerics/remainder.hpp"

namespace mp::kernels::MP_CHUNK_NAMESPACE {

// The arrays of a tile in fp32: old values first, new ones after the update.
struct UpdateTiles {
    alignas(64) float weight[kTile];
    alignas(64) float grad[kTile];
    alignas(64) float states[numerics::kMaxStates][kTile];
    alignas(64) float compensation[kTile];
};

MP_CHUNK_INLINE void load_values(DType dtype, const void* data, const float* scale_inv,
                                 int64_t element, float* values, int n) {
    const void* from = element_address(data, dtype, element);
    if (scale_inv != nullptr) {
        widen_scaled_tile(dtype, from, *scale_inv, values, n);
    } else {
        widen_tile(dtype, from, values, n);
    }
}

// Overwrites the values with the numbers that are rounded.
MP_CHUNK_INLINE void store_values(DType dtype, void* data, const numerics::BlockScale* scale,
                                  int64_t element, float* values, int n, bool stochastic,
                                  const TileBits* bits) {
    if (scale != nullptr) {
        const float multiply = scale->multiply;
        MP_CHUNK_INDEPENDENT
        for (int i = 0; i < n; ++i) {
            values[i] = code_value(dtype, values[i], multiply);
        }
    }
    void* memory = element_address(data, dtype, element);
    if (stochastic && dtype != DType::fp32) {
        narrow_tile<Rounding::stochastic>(dtype, values, memory, n, bits);
    } else {
        narrow_tile<Rounding::nearest>(dtype, values, memory, n, nullptr);
    }
}

MP_CHUNK_INLINE const numerics::BlockScale* scale_if(const void* scale_inv,
                                                     const numerics::BlockScale& scale) {
    return scale_inv != nullptr ? &scale : nullptr;
}

typedef uint16_t ParamInMemory __attribute__((aligned(1), may_alias));
typedef int16_t RemainderInMemory __attribute__((aligned(1), may_alias));

MP_CHUNK_INLINE void load_joined(const UpdateSegment& s, int64_t element, float* values, int n) {
    const ParamInMemory* param = static_cast<const ParamInMemory*>(s.param.data) + element;
    const RemainderInMemory* remainder =
        static_cast<const RemainderInMemory*>(s.master.data) + element;
    MP_CHUNK_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        values[i] = numerics::join_master(param[i], remainder[i]);
    }
}

MP_CHUNK_INLINE void store_split(const UpdateSegment& s, int64_t element, const float* values,
                                 int n) {
    ParamInMemory* param = static_cast<ParamInMemory*>(s.param.data) + element;
    RemainderInMemory* remainder = static_cast<RemainderInMemory*>(s.master.data) + element;
    MP_CHUNK_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        const numerics::SplitMaster split = numerics::split_master(values[i]);
        param[i] = split.param;
        remainder[i] = split.remainder;
    }
}

// n bf16 parameters at `memory`, of master weights that are kept whole.
MP_CHUNK_INLINE void store_half_away(const FloatInMemory* values, void* memory, int n) {
    ParamInMemory* param = static_cast<ParamInMemory*>(memory);
    MP_CHUNK_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        param[i] = numerics::bf16_half_away(values[i]);
    }
}

template <class Rule> MP_CHUNK_INLINE StateArray state_of(const UpdateSegment& s, int k) {
    const StepArray& a = s.states[k];
    return {a.coding, numerics::is_signed_state<Rule>(k), a.dtype, a.data, a.scale_inv};
}

MP_CHUNK_INLINE void load_state(const StateArray& a, int64_t element, float* values, int n) {
    if (has_blocks(a.coding)) {
        load_blocks(a, element, values, n);
    } else {
        load_values(a.dtype, a.data, a.scales, element, values, n);
    }
}

// Overwrites the values; `bits` null: rounded to nearest.
MP_CHUNK_INLINE void store_state(const StateArray& a, const numerics::BlockScale& scale,
                                 int64_t element, float* values, int n, const TileBits* bits) {
    if (has_blocks(a.coding)) {
        store_blocks(a, element, values, n, bits);
    } else {
        store_values(a.dtype, a.data, scale_if(a.scales, scale), element, values, n,
                     bits != nullptr, bits);
    }
}

MP_CHUNK_INLINE void load_array(const StepArray& a, int64_t element, float* values, int n) {
    load_values(a.dtype, a.data, a.scale_inv, element, values, n);
}

template <class Rule> struct ScaledBody {
    // The new values of n elements from the old codes.
    static MP_CHUNK_INLINE void compute(const UpdateContext& c, int64_t element, int n,
                                        UpdateTiles& t, const TileBits& param_bits) {
        const UpdateSegment& s = *c.segment;
        if (s.has_remainder()) {
            load_joined(s, element, t.weight, n);
        } else {
            load_array(s.master.exists() ? s.master : s.param, element, t.weight, n);
        }
        load_array(s.grad, element, t.grad, n);
        for (int k = 0; k < Rule::kStateCount; ++k) {
            load_state(state_of<Rule>(s, k), element, t.states[k], n);
        }
        if (s.compensation.exists()) {
            load_array(s.compensation, element, t.compensation, n);
        }
        update_streams<Rule>(
            {t.weight, t.grad, {t.states[0], t.states[1]}, t.compensation, &param_bits}, c, n);
    }

    static MP_CHUNK_INLINE void store_weight(const UpdateContext& c, int64_t element, int n,
                                             UpdateTiles& t, const TileBits& param_bits) {
        const UpdateSegment& s = *c.segment;
        if (s.has_remainder()) {
            store_split(s, element, t.weight, n);
            return;
        }
        bool stochastic = (c.stochastic & kSrParam) != 0;
        if (s.compensation.exists()) {
            store_values(s.compensation.dtype, s.compensation.data, nullptr, element,
                         t.compensation, n, false, nullptr);
            stochastic = false; // the parameter is representable already
        }
        if (s.master.exists()) {
            store_values(s.master.dtype, s.master.data,
                         scale_if(s.master.scale_inv, c.scaling->master), element, t.weight, n,
                         false, nullptr);
            if (s.master.scale_inv != nullptr) {
                load_values(s.master.dtype, s.master.data, &c.scaling->master.scale_inv, element,
                            t.weight, n);
            }
        }
        if (s.param_half_away != 0) {
            store_half_away(t.weight, element_address(s.param.data, s.param.dtype, element), n);
            return;
        }
        store_values(s.param.dtype, s.param.data, scale_if(s.param.scale_inv, c.scaling->param),
                     element, t.weight, n, stochastic, &param_bits);
    }

    static MP_CHUNK_INLINE void tile(const UpdateContext& c, int64_t element, int n) {
        const UpdateSegment& s = *c.segment;
        UpdateTiles t;
        UpdateBits bits;
        fill_bits<Rule>(c, element, n, bits);
        compute(c, element, n, t, bits.param);
        store_weight(c, element, n, t, bits.param);
        for (int k = 0; k < Rule::kStateCount; ++k) {
            store_state(state_of<Rule>(s, k), c.scaling->states[k], element, t.states[k], n,
                        (c.stochastic & state_flag(k)) != 0 ? &bits.states[k] : nullptr);
        }
    }
};

MP_CHUNK_INLINE void raise(uint32_t& largest, const float* values, int n) {
    const uint32_t here = amax_as<DType::fp32>(values, n);
    largest = here > largest ? here : largest;
}

// The first pass: writes nothing but the maxima.
template <class Rule>
MP_CHUNK_FUNCTION void measure_tiles(const UpdateJob& job, const UpdateContext& c,
                                     UpdateScaling& maxima) {
    UpdateTiles t;
    const TileBits no_bits =
        {}; // a compensated parameter has no scale, so its rounding does not matter
    for (int64_t done = 0; done < job.count; done += kTile) {
        const int64_t element = job.start + done;
        const int n = min_int(job.count - done, kTile);
        prefetch_streams(*c.segment, element, n);
        ScaledBody<Rule>::compute(c, element, n, t, no_bits);
        raise(maxima.weight_amax, t.weight, n);
        for (int k = 0; k < Rule::kStateCount; ++k) {
            raise(maxima.state_amax[k], t.states[k], n);
        }
    }
}

} // namespace mp::kernels::MP_CHUNK_NAMESPACE
