// SPDX-License-Identifier: Apache-2.0
// The fused AdamW step of one chunk. The generic kernel takes any types: streams of 16 bits go
// through a tile of fp32, streams of fp32 do not. The rows of adamw_rows.def have a faster loop
// with the same bits. Scaled arrays have a kernel of their own.
#pragma once

#include "kernels/chunk/adamw_block_row.hpp"
#include "kernels/chunk/adamw_pairs.hpp"
#include "kernels/chunk/adamw_scaled.hpp"
#include "kernels/chunk/adamw_streams.hpp"
#include "kernels/chunk/jobs.hpp"
#include "kernels/chunk/memory.hpp"
#include "kernels/chunk/tile.hpp"

namespace mp::kernels::MP_CHUNK_NAMESPACE {

// One array of the step: where its elements are in fp32 while the step works on them.
struct AdamwStage {
    DType dtype;
    void* memory;
    FloatInMemory* values;

    // fp32 arrays stay where they are.
    MP_CHUNK_INLINE void open(DType type, void* data, int64_t element, float* tile, int n) {
        dtype = type;
        memory = element_address(data, type, element);
        if (type == DType::fp32) {
            values = static_cast<FloatInMemory*>(memory);
        } else {
            values = tile;
            widen_tile(type, memory, tile, n);
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
MP_CHUNK_INLINE void store_param(const AdamwContext& c, const FloatInMemory* values,
                                 int64_t element, int n, const TileBits& bits) {
    const AdamwSegment& s = *c.segment;
    void* memory = element_address(s.param, s.param_dtype, element);
    const int64_t bytes = n * dtype_size(s.param_dtype);
    alignas(64) unsigned char buffer[4 * kTile];
    const bool stream = c.stream_param && bytes % 64 == 0 && bytes_to_line(memory) == 0;
    void* target = stream ? buffer : memory;
    if (s.param_half_away != 0) {
        store_half_away(values, target, n);
    } else if ((c.stochastic & kSrParam) != 0) {
        narrow_tile<Rounding::stochastic>(s.param_dtype, values, target, n, &bits);
    } else {
        narrow_tile<Rounding::nearest>(s.param_dtype, values, target, n, nullptr);
    }
    if (stream) {
        stream_lines(memory, buffer, bytes);
    }
}

struct AdamwGeneric {
    static MP_CHUNK_INLINE void tile(const AdamwContext& c, int64_t element, int n) {
        const AdamwSegment& s = *c.segment;
        const bool has_master = s.master_dtype != DType::none;
        const bool has_compensation = s.compensation_dtype != DType::none;
        float tiles[5][kTile];
        AdamwBits bits;
        fill_bits(c, element, n, bits);

        AdamwStage weight;
        AdamwStage grad;
        AdamwStage exp_avg;
        AdamwStage exp_avg_sq;
        AdamwStage compensation = {DType::fp32, nullptr, nullptr};
        if (has_master) {
            weight.open(s.master_dtype, s.master, element, tiles[0], n);
        } else {
            weight.open(s.param_dtype, s.param, element, tiles[0], n);
        }
        grad.open(s.grad_dtype, s.grad, element, tiles[1], n);
        exp_avg.open(s.exp_avg_dtype, s.exp_avg, element, tiles[2], n);
        exp_avg_sq.open(s.exp_avg_sq_dtype, s.exp_avg_sq, element, tiles[3], n);
        if (has_compensation) {
            compensation.open(s.compensation_dtype, s.compensation, element, tiles[4], n);
        }

        update_streams({weight.values, grad.values, exp_avg.values, exp_avg_sq.values,
                        compensation.values, &bits.param},
                       c, n);

        if (has_master) {
            store_param(c, weight.values, element, n, bits.param);
        } else {
            // A compensated parameter is representable already, whichever way it was rounded.
            weight.close(n, (c.stochastic & kSrParam) != 0 && !has_compensation, bits.param);
        }
        exp_avg.close(n, (c.stochastic & kSrExpAvg) != 0, bits.exp_avg);
        exp_avg_sq.close(n, (c.stochastic & kSrExpAvgSq) != 0, bits.exp_avg_sq);
        compensation.close(n, false, bits.param);
    }
};

template <bool kCompensated, uint32_t kSr> struct AdamwBf16Row {
    static MP_CHUNK_INLINE void tile(const AdamwContext& c, int64_t element, int n) {
        const AdamwSegment& s = *c.segment;
        AdamwBits bits;
        if constexpr (kSr != kSrNone) {
            fill_bits(c, element, n, bits);
        }
        const auto at = [element](void* data) {
            return element_address(data, DType::bf16, element);
        };
        const auto bits_if = [](uint32_t flag, const TileBits& all) {
            return (kSr & flag) != 0 ? all.high : nullptr;
        };
        update_pairs_tile<kCompensated, kSr>(
            {at(s.param), at(s.grad), at(s.exp_avg), at(s.exp_avg_sq),
             kCompensated ? at(s.compensation) : nullptr, bits_if(kSrParam, bits.param),
             bits_if(kSrExpAvg, bits.exp_avg), bits_if(kSrExpAvgSq, bits.exp_avg_sq)},
            *c.scalars, n);
    }
};

// Clears what the tile has just read, so the lines are in the cache.
MP_CHUNK_INLINE void clear_grad(const AdamwSegment& s, int64_t element, int n) {
    __builtin_memset(element_address(s.grad, s.grad_dtype, element), 0,
                     static_cast<std::size_t>(n * dtype_size(s.grad_dtype)));
}

template <class Row>
MP_CHUNK_FUNCTION void adamw_tiles(const AdamwJob& job, const AdamwContext& c) {
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

inline constexpr AdamwScaling kNoScaling = {};

MP_CHUNK_INLINE AdamwContext adamw_context(const AdamwJob& job) {
    const AdamwSegment& s = *job.segment;
    return {&s,
            &job.op->scalars[s.group],
            numerics::make_sr_key(job.op->seed, s.uid, job.step),
            stochastic_flags(*job.op, s),
            job.stream,
            job.scaling != nullptr ? job.scaling : &kNoScaling};
}

MP_CHUNK_INLINE bool is_scaled(const AdamwSegment& s) {
    return s.grad_scale_inv != nullptr || s.has_scaled_states() || s.has_block_states() ||
           s.has_remainder();
}

inline void adamw_generic_chunk(const AdamwJob& job) {
    if (is_scaled(*job.segment)) {
        return adamw_tiles<AdamwScaled>(job, adamw_context(job));
    }
    adamw_tiles<AdamwGeneric>(job, adamw_context(job));
}

inline void adamw_measure_chunk(const AdamwJob& job, AdamwScaling& maxima) {
    measure_tiles(job, adamw_context(job), maxima);
}

// The number of a row among those whose arrays are all bf16.
MP_CHUNK_INLINE constexpr uint32_t row_key(DType compensation, uint32_t stochastic) {
    return static_cast<uint32_t>(compensation) << 8 | stochastic;
}

inline void adamw_chunk(const AdamwJob& job) {
    const AdamwContext c = adamw_context(job);
    const AdamwSegment& s = *job.segment;
    if (is_block_row(c, DType::bf16)) {
        return adamw_tiles<AdamwBlockRow<DType::bf16>>(job, c);
    }
    if (is_block_row(c, DType::fp32)) {
        return adamw_tiles<AdamwBlockRow<DType::fp32>>(job, c);
    }
    const bool is_bf16 = s.param_dtype == DType::bf16 && s.grad_dtype == DType::bf16 &&
                         s.exp_avg_dtype == DType::bf16 && s.exp_avg_sq_dtype == DType::bf16 &&
                         s.master_dtype == DType::none;
    if (!is_bf16 || is_scaled(s) || c.scalars->l2 != 0.0F) {
        return adamw_generic_chunk(job);
    }
    switch (row_key(s.compensation_dtype, c.stochastic)) {
#define X(name, compensation, stochastic)                                                          \
    case row_key(DType::compensation, stochastic):                                                 \
        return adamw_tiles<AdamwBf16Row<DType::compensation != DType::none, (stochastic)>>(job, c);
#include "kernels/adamw_rows.def"
#undef X
    default:
        return adamw_tiles<AdamwGeneric>(job, c);
    }
}

} // namespace mp::kernels::MP_CHUNK_NAMESPACE
