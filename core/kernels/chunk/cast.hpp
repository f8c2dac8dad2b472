// SPDX-License-Identifier: Apache-2.0
// cast of one chunk: tile to fp32, fp32 to the destination's type. Large outputs go through a small
// buffer and around the caches: otherwise each written line is first read from memory, a third of
// the whole traffic.
#pragma once

#include "kernels/chunk/jobs.hpp"
#include "kernels/chunk/memory.hpp"
#include "kernels/chunk/random_bits.hpp"
#include "kernels/chunk/tile.hpp"

namespace mp::kernels::MP_CHUNK_NAMESPACE {

// Saturation before stochastic rounding: the largest finite value is representable, so rounding
// cannot leave it. NaN passes, and fp32 has no limit, because a conversion that does not convert
// cannot overflow.
MP_CHUNK_INLINE void clamp_tile(DType dtype, float* values, int n) {
    if (dtype == DType::fp32) {
        return;
    }
    const float limit = max_finite(dtype);
    for (int i = 0; i < n; ++i) {
        const float x = values[i];
        const float below = x > limit ? limit : x;
        values[i] = below < -limit ? -limit : below;
    }
}

// Rounds n <= kTile elements from `element` on into `destination`.
MP_CHUNK_INLINE void cast_tile(const CastDesc& op, const numerics::SrKey& key, int64_t element,
                               int n, void* destination) {
    float values[kTile];
    widen_tile(op.source.dtype, element_address(op.source.data, op.source.dtype, element), values,
               n);
    const DType to = op.destination.dtype;
    if (op.stochastic && to != DType::fp32) {
        TileBits bits;
        random_tile(to, key, numerics::Purpose::cast, element, n, bits);
        if (op.saturate) {
            clamp_tile(to, values, n);
        }
        narrow_tile<Rounding::stochastic>(to, values, destination, n, &bits);
    } else if (op.saturate) {
        narrow_tile<Rounding::saturating>(to, values, destination, n, nullptr);
    } else {
        narrow_tile<Rounding::nearest>(to, values, destination, n, nullptr);
    }
}

inline void cast_chunk(const CastJob& job) {
    const CastDesc& op = *job.op;
    const numerics::SrKey key = numerics::make_sr_key(op.seed, op.uid, op.step);
    const DType to = op.destination.dtype;
    for (int64_t done = 0; done < job.count; done += kTile) {
        const int64_t element = job.start + done;
        const int n = min_int(job.count - done, kTile);
        prefetch_ahead(element_address(op.source.data, op.source.dtype, element),
                       n * dtype_size(op.source.dtype));
        cast_tile(op, key, element, n, element_address(op.destination.data, to, element));
    }
}

} // namespace mp::kernels::MP_CHUNK_NAMESPACE
