// SPDX-License-Identifier: Apache-2.0
// cast of one chunk: tile to fp32, fp32 to the destination's type. Large outputs go through a small
// buffer and around the caches: otherwise each written line is first read from memory, a third of
// the whole traffic.
#pragma once

#include "host/kernels/cast_lookup.hpp"
#include "host/kernels/dequantize_vector.hpp"
#include "host/kernels/fp8_words.hpp"
#include "host/kernels/half_words.hpp"
#include "host/kernels/jobs.hpp"
#include "host/kernels/memory.hpp"
#include "host/kernels/random_bits.hpp"
#include "host/kernels/tile.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

MP_ISA_INLINE void clamp_tile(DType dtype, const FloatInMemory* values, float* clamped, int n) {
    const float limit = max_finite(dtype);
    for (int i = 0; i < n; ++i) {
        clamped[i] = numerics::clamp_to_finite(values[i], limit);
    }
}

MP_ISA_INLINE void round_stochastic(const CastDesc& op, const numerics::SrKey& key, int64_t element,
                                    const FloatInMemory* values, int n, void* destination) {
    const DType to = op.destination.dtype;
    TileBits bits;
    random_span(to, key, numerics::Purpose::cast, op.rounding.first_element + element, n, bits);
    float clamped[kTile];
    if (op.saturate) {
        clamp_tile(to, values, clamped, n);
        narrow_tile<numerics::Narrowing::stochastic>(to, clamped, destination, n, &bits);
    } else {
        narrow_tile<numerics::Narrowing::stochastic_nonsat>(to, values, destination, n, &bits);
    }
}

template <DType kFrom>
MP_ISA_INLINE int encode_directly(const CastDesc& op, const void* source, void* destination,
                                  int n) {
    const bool saturate = op.saturate;
    return op.destination.dtype == DType::fp8_e4m3
               ? encode_words<kFrom, DType::fp8_e4m3>(source, destination, n, saturate)
               : encode_words<kFrom, DType::fp8_e5m2>(source, destination, n, saturate);
}

// Pairs of types that are converted without an fp32 tile between. Returns how many elements were;
// the rest takes the usual way, to the same bits.
MP_ISA_INLINE int cast_directly(const CastDesc& op, const void* source, void* destination, int n) {
    const DType from = op.source.dtype;
    const DType to = op.destination.dtype;
    const bool is_fp8 = mp::is_fp8(to);
    if (from == DType::bf16 && is_fp8 && !op.rounding.stochastic) {
        return encode_directly<DType::bf16>(op, source, destination, n);
    }
    if (from == DType::bf16 && to == DType::fp16 && !op.rounding.stochastic) {
        return bf16_to_fp16_words(source, destination, n);
    }
    if (from == DType::fp16 && to == DType::bf16 && !op.rounding.stochastic) {
        return fp16_to_bf16_words(source, destination, n);
    }
    if (from == DType::fp16 && is_fp8 && !op.rounding.stochastic) {
        return encode_directly<DType::fp16>(op, source, destination, n);
    }
    if (from == DType::fp8_e4m3 && to == DType::bf16) {
        return e4m3_to_bf16_vector(source, destination, n); // exact, however it is to be rounded
    }
    const float one = 1.0F;
    return dequantize_vector(from, to, source, n, &one, 0, 0, destination); // as exact
}

// Rounds n <= kTile elements from `element` on into `destination`. What is fp32 is used where it
// is.
MP_ISA_INLINE void cast_tile(const CastDesc& op, const numerics::SrKey& key, int64_t element, int n,
                             void* destination) {
    const DType from = op.source.dtype;
    const DType to = op.destination.dtype;
    const void* source = element_address(op.source.data, from, element);
    if (to == DType::fp32) {
        widen_tile(from, source, static_cast<FloatInMemory*>(destination), n);
        return;
    }
    const int done = cast_directly(op, source, destination, n);
    if (done == n) {
        return;
    }
    source = element_address(source, from, done);
    destination = element_address(destination, to, done);
    element += done;
    n -= done;
    alignas(64) float tile[kTile];
    const FloatInMemory* values = tile;
    if (from == DType::fp32) {
        values = static_cast<const FloatInMemory*>(source);
    } else {
        widen_tile(from, source, tile, n);
    }
    if (op.rounding.stochastic) {
        round_stochastic(op, key, element, values, n, destination);
    } else if (op.saturate) {
        narrow_tile<numerics::Narrowing::saturating>(to, values, destination, n, nullptr);
    } else {
        narrow_tile<numerics::Narrowing::nearest>(to, values, destination, n, nullptr);
    }
}

inline void cast_chunk(const CastJob& job) {
    const CastDesc& op = *job.op;
    const DType to = op.destination.dtype;
    const numerics::SrKey key = op.rounding.key();
    // Tiles start at whole lines of the destination if its first element does.
    const bool stream = job.stream && bytes_to_line(op.destination.data) == 0;
    const bool is_done = cast_lookup(job, stream);
    for (int64_t done = is_done ? job.count : 0; done < job.count; done += kTile) {
        const int64_t element = job.start + done;
        const int n = min_int(job.count - done, kTile);
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

} // namespace mp::backends::host::MP_ISA_NAMESPACE
