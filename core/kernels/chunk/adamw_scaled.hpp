// SPDX-License-Identifier: Apache-2.0
// The fused AdamW step of one chunk where arrays hold codes with scales. Everything goes through
// tiles of fp32, also what is fp32 already, because the first of the two passes must not change
// what the second reads.
#pragma once

#include "kernels/adamw_scaling.hpp"
#include "kernels/chunk/adamw_blocks.hpp"
#include "kernels/chunk/adamw_streams.hpp"
#include "kernels/chunk/amax.hpp"
#include "kernels/chunk/jobs.hpp"
#include "numerics/remainder.hpp"

namespace mp::kernels::MP_CHUNK_NAMESPACE {

// The arrays of a tile in fp32: old values first, new ones after the update.
struct AdamwTiles {
    alignas(64) float weight[kTile];
    alignas(64) float grad[kTile];
    alignas(64) float exp_avg[kTile];
    alignas(64) float exp_avg_sq[kTile];
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

MP_CHUNK_INLINE void load_joined(const AdamwSegment& s, int64_t element, float* values, int n) {
    const ParamInMemory* param = static_cast<const ParamInMemory*>(s.param) + element;
    const RemainderInMemory* remainder = static_cast<const RemainderInMemory*>(s.master) + element;
    MP_CHUNK_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        values[i] = numerics::join_master(param[i], remainder[i]);
    }
}

MP_CHUNK_INLINE void store_split(const AdamwSegment& s, int64_t element, const float* values,
                                 int n) {
    ParamInMemory* param = static_cast<ParamInMemory*>(s.param) + element;
    RemainderInMemory* remainder = static_cast<RemainderInMemory*>(s.master) + element;
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

MP_CHUNK_INLINE MomentArray exp_avg_of(const AdamwSegment& s) {
    return {s.exp_avg_coding, true, s.exp_avg_dtype, s.exp_avg, s.exp_avg_scale_inv};
}
MP_CHUNK_INLINE MomentArray exp_avg_sq_of(const AdamwSegment& s) {
    return {s.exp_avg_sq_coding, false, s.exp_avg_sq_dtype, s.exp_avg_sq, s.exp_avg_sq_scale_inv};
}

MP_CHUNK_INLINE void load_moment(const MomentArray& a, int64_t element, float* values, int n) {
    if (has_blocks(a.coding)) {
        load_blocks(a, element, values, n);
    } else {
        load_values(a.dtype, a.data, a.scales, element, values, n);
    }
}

// Overwrites the values; `bits` null: rounded to nearest.
MP_CHUNK_INLINE void store_moment(const MomentArray& a, const numerics::BlockScale& scale,
                                  int64_t element, float* values, int n, const TileBits* bits) {
    if (has_blocks(a.coding)) {
        store_blocks(a, element, values, n, bits);
    } else {
        store_values(a.dtype, a.data, scale_if(a.scales, scale), element, values, n,
                     bits != nullptr, bits);
    }
}

struct AdamwScaled {
    // The new values of n elements from the old codes.
    static MP_CHUNK_INLINE void compute(const AdamwContext& c, int64_t element, int n,
                                        AdamwTiles& t, const TileBits& param_bits) {
        const AdamwSegment& s = *c.segment;
        if (s.has_remainder()) {
            load_joined(s, element, t.weight, n);
        } else if (s.master_dtype != DType::none) {
            load_values(s.master_dtype, s.master, s.master_scale_inv, element, t.weight, n);
        } else {
            load_values(s.param_dtype, s.param, s.param_scale_inv, element, t.weight, n);
        }
        load_values(s.grad_dtype, s.grad, s.grad_scale_inv, element, t.grad, n);
        load_moment(exp_avg_of(s), element, t.exp_avg, n);
        load_moment(exp_avg_sq_of(s), element, t.exp_avg_sq, n);
        if (s.compensation_dtype != DType::none) {
            load_values(s.compensation_dtype, s.compensation, nullptr, element, t.compensation, n);
        }
        update_streams({t.weight, t.grad, t.exp_avg, t.exp_avg_sq, t.compensation, &param_bits}, c,
                       n);
    }

    static MP_CHUNK_INLINE void store_weight(const AdamwContext& c, int64_t element, int n,
                                             AdamwTiles& t, const TileBits& param_bits) {
        const AdamwSegment& s = *c.segment;
        if (s.has_remainder()) {
            store_split(s, element, t.weight, n);
            return;
        }
        bool stochastic = (c.stochastic & kSrParam) != 0;
        if (s.compensation_dtype != DType::none) {
            store_values(s.compensation_dtype, s.compensation, nullptr, element, t.compensation, n,
                         false, nullptr);
            stochastic = false; // the parameter is representable already
        }
        if (s.master_dtype != DType::none) {
            store_values(s.master_dtype, s.master, scale_if(s.master_scale_inv, c.scaling->master),
                         element, t.weight, n, false, nullptr);
            if (s.master_scale_inv != nullptr) {
                load_values(s.master_dtype, s.master, &c.scaling->master.scale_inv, element,
                            t.weight, n);
            }
        }
        if (s.param_half_away != 0) {
            store_half_away(t.weight, element_address(s.param, s.param_dtype, element), n);
            return;
        }
        store_values(s.param_dtype, s.param, scale_if(s.param_scale_inv, c.scaling->param), element,
                     t.weight, n, stochastic, &param_bits);
    }

    static MP_CHUNK_INLINE void tile(const AdamwContext& c, int64_t element, int n) {
        const AdamwSegment& s = *c.segment;
        AdamwTiles t;
        AdamwBits bits;
        fill_bits(c, element, n, bits);
        compute(c, element, n, t, bits.param);
        store_weight(c, element, n, t, bits.param);
        store_moment(exp_avg_of(s), c.scaling->exp_avg, element, t.exp_avg, n,
                     (c.stochastic & kSrExpAvg) != 0 ? &bits.exp_avg : nullptr);
        store_moment(exp_avg_sq_of(s), c.scaling->exp_avg_sq, element, t.exp_avg_sq, n,
                     (c.stochastic & kSrExpAvgSq) != 0 ? &bits.exp_avg_sq : nullptr);
    }
};

MP_CHUNK_INLINE void raise(uint32_t& largest, const float* values, int n) {
    const uint32_t here = amax_as<DType::fp32>(values, n);
    largest = here > largest ? here : largest;
}

// The first pass: writes nothing but the maxima.
MP_CHUNK_FUNCTION inline void measure_tiles(const AdamwJob& job, const AdamwContext& c,
                                            AdamwScaling& maxima) {
    AdamwTiles t;
    const TileBits no_bits =
        {}; // a compensated parameter has no scale, so its rounding does not matter
    for (int64_t done = 0; done < job.count; done += kTile) {
        const int64_t element = job.start + done;
        const int n = min_int(job.count - done, kTile);
        prefetch_streams(*c.segment, element, n);
        AdamwScaled::compute(c, element, n, t, no_bits);
        raise(maxima.weight_amax, t.weight, n);
        raise(maxima.exp_avg_amax, t.exp_avg, n);
        raise(maxima.exp_avg_sq_amax, t.exp_avg_sq, n);
    }
}

} // namespace mp::kernels::MP_CHUNK_NAMESPACE
