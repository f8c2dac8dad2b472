// SPDX-License-Identifier: Apache-2.0
// The fused optimizer step of one chunk. The generic kernel takes any types: streams of 16 bits go
// through a tile of fp32, streams of fp32 do not. The rows of update_rows.def have a faster loop
// with the same bits. Scaled arrays have a kernel of their own.
#pragma once

#include "kernels/chunk/jobs.hpp"
#include "kernels/chunk/memory.hpp"
#include "kernels/chunk/tile.hpp"
#include "kernels/chunk/update_block_row.hpp"
#include "kernels/chunk/update_pairs.hpp"
#include "kernels/chunk/update_scaled.hpp"
#include "kernels/chunk/update_streams.hpp"

namespace mp::kernels::MP_CHUNK_NAMESPACE {

// One array of the step: where its elements are in fp32 while the step works on them.
struct StagedArray {
    DType dtype;
    void* memory;
    FloatInMemory* values;

    // fp32 arrays stay where they are.
    MP_CHUNK_INLINE void open(const StepArray& a, int64_t element, float* tile, int n) {
        dtype = a.dtype;
        memory = element_address(a.data, dtype, element);
        if (dtype == DType::fp32) {
            values = static_cast<FloatInMemory*>(memory);
        } else {
            values = tile;
            widen_tile(dtype, memory, tile, n);
        }
    }

    MP_CHUNK_INLINE void close(int n, bool stochastic, const TileBits& bits) const {
        if (dtype == DType::fp32) {
            return;
        }
        if (stochastic) {
            narrow_tile<Rounding::stochastic>(dtype, values, memory, n, &bits);
        } else {
            narrow_tile<Rounding::nearest>(dtype, values, memory, n, nullptr);
        }
    }
};

// The parameter from the master weight. Nothing has read its memory, so where it is too large to be
// kept in the caches it is written around them.
MP_CHUNK_INLINE void store_param(const UpdateContext& c, const FloatInMemory* values,
                                 int64_t element, int n, const TileBits& bits) {
    const UpdateSegment& s = *c.segment;
    void* memory = element_address(s.param.data, s.param.dtype, element);
    const int64_t bytes = n * dtype_size(s.param.dtype);
    alignas(64) unsigned char buffer[4 * kTile];
    const bool stream = c.stream_param && bytes % 64 == 0 && bytes_to_line(memory) == 0;
    void* target = stream ? buffer : memory;
    if (s.param_half_away != 0) {
        store_half_away(values, target, n);
    } else if ((c.stochastic & kSrParam) != 0) {
        narrow_tile<Rounding::stochastic>(s.param.dtype, values, target, n, &bits);
    } else {
        narrow_tile<Rounding::nearest>(s.param.dtype, values, target, n, nullptr);
    }
    if (stream) {
        stream_lines(memory, buffer, bytes);
    }
}

template <class Rule> struct PlainBody {
    static MP_CHUNK_INLINE void tile(const UpdateContext& c, int64_t element, int n) {
        const UpdateSegment& s = *c.segment;
        const bool has_master = s.master.exists();
        const bool has_compensation = s.compensation.exists();
        float tiles[3 + numerics::kMaxStates][kTile];
        UpdateBits bits;
        fill_bits<Rule>(c, element, n, bits);

        StagedArray weight;
        StagedArray grad;
        StagedArray states[numerics::kMaxStates];
        StagedArray compensation = {DType::fp32, nullptr, nullptr};
        weight.open(has_master ? s.master : s.param, element, tiles[0], n);
        grad.open(s.grad, element, tiles[1], n);
        UpdateStreams streams = {weight.values, grad.values, {}, nullptr, &bits.param};
        if (has_compensation) {
            compensation.open(s.compensation, element, tiles[2], n);
            streams.compensation = compensation.values;
        }
        for (int k = 0; k < Rule::kStateCount; ++k) {
            states[k].open(s.states[k], element, tiles[3 + k], n);
            streams.states[k] = states[k].values;
        }

        update_streams<Rule>(streams, c, n);

        if (has_master) {
            store_param(c, weight.values, element, n, bits.param);
        } else {
            // A compensated parameter is representable already, whichever way it was rounded.
            weight.close(n, (c.stochastic & kSrParam) != 0 && !has_compensation, bits.param);
        }
        for (int k = 0; k < Rule::kStateCount; ++k) {
            states[k].close(n, (c.stochastic & state_flag(k)) != 0, bits.states[k]);
        }
        compensation.close(n, false, bits.param);
    }
};

template <class Rule, bool kCompensated, uint32_t kSr> struct Bf16Row {
    static MP_CHUNK_INLINE void tile(const UpdateContext& c, int64_t element, int n) {
        const UpdateSegment& s = *c.segment;
        UpdateBits bits;
        if constexpr (kSr != kSrNone) {
            fill_bits<Rule>(c, element, n, bits);
        }
        const auto at = [element](const StepArray& a) {
            return element_address(a.data, DType::bf16, element);
        };
        const auto bits_if = [](uint32_t flag, const TileBits& all) {
            return (kSr & flag) != 0 ? all.high : nullptr;
        };
        update_pairs_tile<Rule, kCompensated, kSr>(
            {at(s.param),
             at(s.grad),
             {at(s.states[0]), Rule::kStateCount > 1 ? at(s.states[1]) : nullptr},
             kCompensated ? at(s.compensation) : nullptr,
             bits_if(kSrParam, bits.param),
             {bits_if(kSrState0, bits.states[0]), bits_if(kSrState1, bits.states[1])}},
            *c.scalars, n);
    }
};

// Clears what the tile has just read, so the lines are in the cache.
MP_CHUNK_INLINE void clear_grad(const UpdateSegment& s, int64_t element, int n) {
    __builtin_memset(element_address(s.grad.data, s.grad.dtype, element), 0,
                     static_cast<std::size_t>(n * dtype_size(s.grad.dtype)));
}

template <class Row>
MP_CHUNK_FUNCTION void update_tiles(const UpdateJob& job, const UpdateContext& c) {
    for (int64_t done = 0; done < job.count; done += kTile) {
        const int64_t element = job.start + done;
        const int n = min_int(job.count - done, kTile);
        prefetch_streams(*c.segment, element, n);
        Row::tile(c, element, n);
        if (job.op->zero_grad) {
            clear_grad(*c.segment, element, n);
        }
    }
    if (c.stream_param) {
        finish_stream();
    }
}

inline constexpr UpdateScaling kNoScaling = {};

MP_CHUNK_INLINE UpdateContext update_context(const UpdateJob& job) {
    const UpdateSegment& s = *job.segment;
    return {&s,
            &job.op->scalars[s.group],
            numerics::make_sr_key(job.op->seed, s.uid, job.step),
            stochastic_flags(*job.op, s),
            job.stream,
            job.scaling != nullptr ? job.scaling : &kNoScaling};
}

MP_CHUNK_INLINE bool is_scaled(const UpdateSegment& s) {
    return s.grad.scale_inv != nullptr || s.has_scaled_states() || s.has_block_states() ||
           s.has_remainder();
}

template <class Rule> void update_any_chunk(const UpdateJob& job, const UpdateContext& c) {
    if (is_scaled(*job.segment)) {
        return update_tiles<ScaledBody<Rule>>(job, c);
    }
    update_tiles<PlainBody<Rule>>(job, c);
}

inline void measure_chunk(const UpdateJob& job, UpdateScaling& maxima) {
    const UpdateContext c = update_context(job);
    numerics::with_rule(c.scalars->rule, [&](auto rule) MP_CHUNK_INLINED {
        measure_tiles<decltype(rule)>(job, c, maxima);
    });
}

// The number of a row among those whose arrays are all bf16.
MP_CHUNK_INLINE constexpr uint32_t row_key(DType compensation, uint32_t stochastic) {
    return static_cast<uint32_t>(compensation) << 8 | stochastic;
}

template <class Rule> MP_CHUNK_INLINE bool is_bf16_row(const UpdateSegment& s) {
    bool is_bf16 = s.param.dtype == DType::bf16 && s.grad.dtype == DType::bf16;
    for (int k = 0; k < Rule::kStateCount; ++k) {
        is_bf16 = is_bf16 && s.states[k].dtype == DType::bf16;
    }
    return is_bf16 && !s.master.exists() && !is_scaled(s);
}

template <class Rule> void update_chunk_by(const UpdateJob& job, const UpdateContext& c) {
    const UpdateSegment& s = *job.segment;
    if (is_block_row<Rule>(c, DType::bf16)) {
        return update_tiles<BlockRow<Rule, DType::bf16>>(job, c);
    }
    if (is_block_row<Rule>(c, DType::fp32)) {
        return update_tiles<BlockRow<Rule, DType::fp32>>(job, c);
    }
    if (!is_bf16_row<Rule>(s)) {
        return update_any_chunk<Rule>(job, c);
    }
    switch (row_key(s.compensation.dtype, c.stochastic)) {
#define X(name, compensation, stochastic)                                                          \
    case row_key(DType::compensation, stochastic):                                                 \
        return update_tiles<Bf16Row<Rule, DType::compensation != DType::none, (stochastic)>>(job,  \
                                                                                             c);
#include "kernels/update_rows.def"
#undef X
    default:
        return update_tiles<PlainBody<Rule>>(job, c);
    }
}

inline void update_chunk(const UpdateJob& job) {
    const UpdateContext c = update_context(job);
    numerics::with_rule(c.scalars->rule, [&](auto rule) MP_CHUNK_INLINED {
        update_chunk_by<decltype(rule)>(job, c);
    });
}

} // namespace mp::kernels::MP_CHUNK_NAMESPACE
