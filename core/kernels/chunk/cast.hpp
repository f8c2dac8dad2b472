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
// cannot leave it. NaN passes.
MP_CHUNK_INLINE void clamp_tile(DType dtype, const FloatInMemory* values, float* clamped, int n) {
    const float limit = max_finite(dtype);
    for (int i = 0; i < n; ++i) {
        const float x = values[i];
        const float below = x > limit ? limit : x;
        clamped[i] = below < -limit ? -limit : below;
    }
}

MP_CHUNK_INLINE void round_stochastic(const CastDesc& op, const numerics::SrKey& key,
                                      int64_t element, const FloatInMemory* values, int n,
                                      void* destination) {
    const DType to = op.destination.dtype;
    TileBits bits;
    random_tile(to, key, numerics::Purpose::cast, element, n, bits);
    float clamped[kTile];
    if (op.saturate) {
        clamp_tile(to, values, clamped, n);
        values = clamped;
    }
    narrow_tile<Rounding::stochastic>(to, values, destination, n, &bits);
}

// Rounds n <= kTile elements from `element` on into `destination`. What is fp32 is used where it
// is.
MP_CHUNK_INLINE void cast_tile(const CastDesc& op, const numerics::SrKey& key, int64_t element,
                               int n, void* destination) {
    const DType from = op.source.dtype;
    const DType to = op.destination.dtype;
    const void* source = element_address(op.source.data, from, element);
    if (to == DType::fp32) {
        widen_tile(from, source, static_cast<FloatInMemory*>(destination), n);
        return;
    }
    alignas(64) float tile[kTile];
    const FloatInMemory* values = tile;
    if (from == DType::fp32) {
        values = static_cast<const FloatInMemory*>(source);
    } else {
        widen_tile(from, source, tile, n);
    }
    if (op.stochastic) {
        round_stochastic(op, key, element, values, n, destination);
    } else if (op.saturate) {
        narrow_tile<Rounding::saturating>(to, values, destination, n, nullptr);
    } else {
        narrow_tile<Rounding::nearest>(to, values, destination, n, nullptr);
    }
}

inline void cast_chunk(const CastJob& job) {
    const CastDesc& op = *job.op;
    const DType from = op.source.dtype;
    const DType to = op.destination.dtype;
    const numerics::SrKey key = numerics::make_sr_key(op.seed, op.uid, op.step);
    // Tiles start at whole lines of the destination if its first element does.
    const bool stream = job.stream && bytes_to_line(op.destination.data) == 0;
    for (int64_t done = 0; done < job.count; done += kTile) {
        const int64_t element = job.start + done;
        const int n = min_int(job.count - done, kTile);
        prefetch_ahead(element_address(op.source.data, from, element), n * dtype_size(from));
        void* destination = element_address(op.destination.data, to, element);
        if (stream && n == kTile) {
            alignas(64) unsigned char buffer[4 * kTile];
            cast_tile(op, key, element, n, buffer);
            stream_lines(destination, buffer, n * dtype_size(to));
        } else {
            cast_tile(op, key, element, n, destination);
        }
    }
    if (stream) {
        finish_stream();
    }
}

} // namespace mp::kernels::MP_CHUNK_NAMESPACE
