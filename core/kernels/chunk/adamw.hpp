// SPDX-License-Identifier: Apache-2.0
// The fused AdamW step of one chunk. The generic kernel widens every stream to a tile of fp32, so
// it takes any types; the rows of adamw_rows.def have the types compiled in and work on the arrays
// directly. Same bits.
#pragma once

#include "kernels/chunk/adamw_loop.hpp"
#include "kernels/chunk/jobs.hpp"
#include "kernels/chunk/memory.hpp"
#include "kernels/chunk/random_bits.hpp"
#include "kernels/chunk/tile.hpp"

namespace mp::kernels::MP_CHUNK_NAMESPACE {

// What of a step is rounded stochastically; nothing is rounded into fp32.
MP_CHUNK_INLINE uint32_t stochastic_flags(const AdamwDesc& op, const AdamwSegment& s) {
    return (op.stochastic_param && s.param_dtype != DType::fp32 ? kSrParam : 0U) |
           (op.stochastic_exp_avg && s.exp_avg_dtype != DType::fp32 ? kSrExpAvg : 0U) |
           (op.stochastic_exp_avg_sq && s.exp_avg_sq_dtype != DType::fp32 ? kSrExpAvgSq : 0U);
}

// A layout as one number, to choose a row by.
MP_CHUNK_INLINE constexpr uint64_t layout_key(DType param, DType grad, DType exp_avg,
                                              DType exp_avg_sq, DType compensation, DType master,
                                              uint32_t stochastic) {
    return static_cast<uint64_t>(param) | static_cast<uint64_t>(grad) << 8 |
           static_cast<uint64_t>(exp_avg) << 16 | static_cast<uint64_t>(exp_avg_sq) << 24 |
           static_cast<uint64_t>(compensation) << 32 | static_cast<uint64_t>(master) << 40 |
           static_cast<uint64_t>(stochastic) << 48;
}

// The segment's arrays from `element` on.
MP_CHUNK_INLINE AdamwStreams streams_at(const AdamwSegment& s, int64_t element) {
    AdamwStreams at;
    at.param = element_address(s.param, s.param_dtype, element);
    at.grad = element_address(s.grad, s.grad_dtype, element);
    at.exp_avg = element_address(s.exp_avg, s.exp_avg_dtype, element);
    at.exp_avg_sq = element_address(s.exp_avg_sq, s.exp_avg_sq_dtype, element);
    at.compensation = element_address(s.compensation, s.compensation_dtype, element);
    at.master = element_address(s.master, s.master_dtype, element);
    return at;
}

// Types that are absent have no size, so nothing is asked for them.
MP_CHUNK_INLINE void prefetch_streams(const AdamwSegment& s, const AdamwStreams& at, int n) {
    prefetch_ahead(at.grad, n * dtype_size(s.grad_dtype));
    prefetch_ahead(at.exp_avg, n * dtype_size(s.exp_avg_dtype));
    prefetch_ahead(at.exp_avg_sq, n * dtype_size(s.exp_avg_sq_dtype));
    prefetch_ahead(at.compensation, n * dtype_size(s.compensation_dtype));
    if (s.master_dtype == DType::none) {
        prefetch_ahead(at.param, n * dtype_size(s.param_dtype));
    } else {
        prefetch_ahead(at.master, n * dtype_size(s.master_dtype));
    }
}

// One job's constants.
struct AdamwContext {
    const AdamwSegment* segment;
    const numerics::AdamwScalars* scalars;
    numerics::SrKey key;
    uint32_t stochastic;
};

// The random bits of a tile, one set for each kind of rounding.
struct AdamwBits {
    TileBits param;
    TileBits exp_avg;
    TileBits exp_avg_sq;
};

MP_CHUNK_INLINE void fill_bits(const AdamwContext& c, int64_t element, int n, AdamwBits& bits) {
    const AdamwSegment& s = *c.segment;
    if ((c.stochastic & kSrParam) != 0) {
        random_tile(s.param_dtype, c.key, numerics::Purpose::param, element, n, bits.param);
    }
    if ((c.stochastic & kSrExpAvg) != 0) {
        random_tile(s.exp_avg_dtype, c.key, numerics::Purpose::exp_avg, element, n, bits.exp_avg);
    }
    if ((c.stochastic & kSrExpAvgSq) != 0) {
        random_tile(s.exp_avg_sq_dtype, c.key, numerics::Purpose::exp_avg_sq, element, n,
                    bits.exp_avg_sq);
    }
}

// The streams of the generic kernel.
struct AdamwTiles {
    float param[kTile];
    float grad[kTile];
    float exp_avg[kTile];
    float exp_avg_sq[kTile];
    float compensation[kTile];
    float master[kTile];
};

template <DType kCompensation, DType kMaster, DType kRounded, uint32_t kSr>
MP_CHUNK_INLINE void update_tiles(const AdamwStreams& tiles, const AdamwContext& c, int n) {
    update_tile<AdamwLayout<DType::fp32, DType::fp32, DType::fp32, DType::fp32, kCompensation,
                            kMaster, kRounded, kSr>>(tiles, *c.scalars, n);
}

template <DType kRounded>
MP_CHUNK_INLINE void update_compensated_tiles(const AdamwStreams& tiles, const AdamwContext& c,
                                              int n) {
    if ((c.stochastic & kSrParam) != 0) {
        update_tiles<DType::fp32, DType::none, kRounded, kSrParam>(tiles, c, n);
    } else {
        update_tiles<DType::fp32, DType::none, kRounded, kSrNone>(tiles, c, n);
    }
}

// Only a compensated sum has to know the parameter's type before the end.
inline void update_generic(const AdamwStreams& tiles, const AdamwContext& c, int n) {
    const AdamwSegment& s = *c.segment;
    if (s.master_dtype != DType::none) {
        update_tiles<DType::none, DType::fp32, DType::fp32, kSrNone>(tiles, c, n);
    } else if (s.compensation_dtype == DType::none) {
        update_tiles<DType::none, DType::none, DType::fp32, kSrNone>(tiles, c, n);
    } else if (s.param_dtype == DType::bf16) {
        update_compensated_tiles<DType::bf16>(tiles, c, n);
    } else if (s.param_dtype == DType::fp16) {
        update_compensated_tiles<DType::fp16>(tiles, c, n);
    } else {
        update_tiles<DType::fp32, DType::none, DType::fp32, kSrNone>(tiles, c, n);
    }
}

MP_CHUNK_INLINE void round_tile(DType dtype, const float* values, void* destination, int n,
                                bool stochastic, const TileBits& bits) {
    if (stochastic) {
        narrow_tile<Rounding::stochastic>(dtype, values, destination, n, &bits);
    } else {
        narrow_tile<Rounding::nearest>(dtype, values, destination, n, nullptr);
    }
}

inline void adamw_generic_tile(const AdamwContext& c, int64_t element, int n) {
    const AdamwSegment& s = *c.segment;
    const AdamwStreams at = streams_at(s, element);
    prefetch_streams(s, at, n);
    const bool has_master = s.master_dtype != DType::none;
    const bool has_compensation = s.compensation_dtype != DType::none;

    AdamwTiles tiles;
    widen_tile(s.grad_dtype, at.grad, tiles.grad, n);
    widen_tile(s.exp_avg_dtype, at.exp_avg, tiles.exp_avg, n);
    widen_tile(s.exp_avg_sq_dtype, at.exp_avg_sq, tiles.exp_avg_sq, n);
    if (has_master) {
        widen_tile(s.master_dtype, at.master, tiles.master, n);
    } else {
        widen_tile(s.param_dtype, at.param, tiles.param, n);
    }
    if (has_compensation) {
        widen_tile(s.compensation_dtype, at.compensation, tiles.compensation, n);
    }

    AdamwBits bits;
    fill_bits(c, element, n, bits);
    AdamwStreams streams;
    streams.param = tiles.param;
    streams.grad = tiles.grad;
    streams.exp_avg = tiles.exp_avg;
    streams.exp_avg_sq = tiles.exp_avg_sq;
    streams.compensation = tiles.compensation;
    streams.master = tiles.master;
    streams.param_bits = bits.param.high;
    streams.param_low_bits = bits.param.low;
    update_generic(streams, c, n);

    // A compensated parameter is representable already, whichever way it was rounded.
    const bool round_param_here = (c.stochastic & kSrParam) != 0 && !has_compensation;
    round_tile(s.param_dtype, tiles.param, at.param, n, round_param_here, bits.param);
    round_tile(s.exp_avg_dtype, tiles.exp_avg, at.exp_avg, n, (c.stochastic & kSrExpAvg) != 0,
               bits.exp_avg);
    round_tile(s.exp_avg_sq_dtype, tiles.exp_avg_sq, at.exp_avg_sq, n,
               (c.stochastic & kSrExpAvgSq) != 0, bits.exp_avg_sq);
    if (has_master) {
        narrow_tile<Rounding::nearest>(s.master_dtype, tiles.master, at.master, n, nullptr);
    }
    if (has_compensation) {
        narrow_tile<Rounding::nearest>(s.compensation_dtype, tiles.compensation, at.compensation, n,
                                       nullptr);
    }
}

// fp16 goes through a tile even in a row: its conversion instructions work on whole vectors, which
// the compiler does not find by itself.
MP_CHUNK_INLINE constexpr DType in_loop(DType dtype) {
    return dtype == DType::fp16 ? DType::fp32 : dtype;
}

template <DType kP, DType kG, DType kM, DType kV, DType kC, DType kW, uint32_t kSr>
struct AdamwRow {
    using Layout = AdamwLayout<in_loop(kP), in_loop(kG), kM, kV, kC, kW, kP, kSr>;
    static_assert(kM != DType::fp16 && kV != DType::fp16 && kC != DType::fp16);
    // Read back, an fp16 parameter would have to be staged too.
    static_assert(kP != DType::fp16 || kW != DType::none);

    static MP_CHUNK_INLINE void tile(const AdamwContext& c, int64_t element, int n) {
        const AdamwSegment& s = *c.segment;
        const AdamwStreams at = streams_at(s, element);
        prefetch_streams(s, at, n);
        AdamwStreams streams = at;
        AdamwBits bits;
        if constexpr (kSr != kSrNone) {
            fill_bits(c, element, n, bits);
            streams.param_bits = bits.param.high;
            streams.exp_avg_bits = bits.exp_avg.high;
            streams.exp_avg_sq_bits = bits.exp_avg_sq.high;
        }
        float grad[kTile];
        if constexpr (kG == DType::fp16) {
            widen_tile_as<kG>(at.grad, grad, n);
            streams.grad = grad;
        }
        float param[kTile];
        if constexpr (kP == DType::fp16) {
            streams.param = param;
        }
        update_tile<Layout>(streams, *c.scalars, n);
        if constexpr (kP == DType::fp16) {
            narrow_tile_as<kP, Rounding::nearest>(param, at.param, n, nullptr);
        }
    }
};

// Clears what the tile has just read, so the lines are in the cache.
MP_CHUNK_INLINE void clear_grad(const AdamwSegment& s, int64_t element, int n) {
    __builtin_memset(element_address(s.grad, s.grad_dtype, element), 0,
                     static_cast<std::size_t>(n * dtype_size(s.grad_dtype)));
}

struct AdamwGeneric {
    static MP_CHUNK_INLINE void tile(const AdamwContext& c, int64_t element, int n) {
        adamw_generic_tile(c, element, n);
    }
};

template <class Row>
MP_CHUNK_FUNCTION void adamw_tiles(const AdamwJob& job, const AdamwContext& c) {
    for (int64_t done = 0; done < job.count; done += kTile) {
        const int n = min_int(job.count - done, kTile);
        Row::tile(c, job.start + done, n);
        if (job.op->zero_grad) {
            clear_grad(*c.segment, job.start + done, n);
        }
    }
}

inline AdamwContext adamw_context(const AdamwJob& job) {
    const AdamwSegment& s = *job.segment;
    return {&s, &job.op->scalars[s.group], numerics::make_sr_key(job.op->seed, s.uid, job.step),
            stochastic_flags(*job.op, s)};
}

inline void adamw_generic_chunk(const AdamwJob& job) {
    adamw_tiles<AdamwGeneric>(job, adamw_context(job));
}

inline void adamw_chunk(const AdamwJob& job) {
    const AdamwContext c = adamw_context(job);
    const AdamwSegment& s = *job.segment;
    switch (layout_key(s.param_dtype, s.grad_dtype, s.exp_avg_dtype, s.exp_avg_sq_dtype,
                       s.compensation_dtype, s.master_dtype, c.stochastic)) {
#define X(name, param, grad, exp_avg, exp_avg_sq, compensation, master, stochastic)                \
    case layout_key(DType::param, DType::grad, DType::exp_avg, DType::exp_avg_sq,                  \
                    DType::compensation, DType::master, stochastic):                               \
        return adamw_tiles<AdamwRow<DType::param, DType::grad, DType::exp_avg, DType::exp_avg_sq,  \
                                    DType::compensation, DType::master, (stochastic)>>(job, c);
#include "kernels/adamw_rows.def"
#undef X
    default:
        return adamw_tiles<AdamwGeneric>(job, c);
    }
}

} // namespace mp::kernels::MP_CHUNK_NAMESPACE
