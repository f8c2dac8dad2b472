// SPDX-License-Identifier: Apache-2.0
// dropout of one chunk: a tile of random bits, a tile of fp32, and back to the destination's type, around the caches where that
// is asked for.
#pragma once

#include "host/kernels/bf16_pair.hpp"
#include "host/kernels/jobs.hpp"
#include "host/kernels/memory.hpp"
#include "host/kernels/random_bits.hpp"
#include "host/kernels/tile.hpp"
#include "numerics/dropout.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

struct Dropout {
    const DropoutDesc& op;
    numerics::SrKey key;
    float scale;

    // Bits of n elements, of which the first is lane `into` of its block; into + n <= kTile. Those of the first element are
    // bits[into].
    MP_ISA_INLINE void draw(int64_t element, int into, int n, uint16_t* bits) const {
        fill_random(key, static_cast<uint32_t>(numerics::Purpose::dropout),
                    op.first_element + element - into, into + n, bits);
    }

    MP_ISA_INLINE void drop(const FloatInMemory* x, const uint16_t* bits, int n,
                            FloatInMemory* values) const {
        const uint32_t below = op.drop_below;
        const float factor = scale;
        MP_ISA_INDEPENDENT
        for (int i = 0; i < n; ++i) {
            values[i] = numerics::dropout_value(x[i], factor, bits[i], below);
        }
    }
    static MP_ISA_INLINE void multiply(const FloatInMemory* x, float factor, int n,
                                       FloatInMemory* values) {
        MP_ISA_INDEPENDENT
        for (int i = 0; i < n; ++i) {
            values[i] = x[i] * factor;
        }
    }
    static MP_ISA_INLINE void add(const FloatInMemory* old, int n, FloatInMemory* values) {
        MP_ISA_INDEPENDENT
        for (int i = 0; i < n; ++i) {
            values[i] = old[i] + values[i];
        }
    }

    // From bf16 to bf16, without tiles between. Random bits are pairs as well.
    template <bool kAccumulate>
    MP_ISA_INLINE void pairs(int64_t element, const uint16_t* bits, int n,
                             void* destination) const {
        const void* x = element_address(op.source.data, DType::bf16, element);
        const void* y = element_address(op.destination.data, DType::bf16, element);
        const Bf16Pair* from = static_cast<const Bf16Pair*>(x);
        const Bf16Pair* old = static_cast<const Bf16Pair*>(y);
        const Bf16Pair* random = static_cast<const Bf16Pair*>(static_cast<const void*>(bits));
        Bf16Pair* to = static_cast<Bf16Pair*>(destination);
        const uint32_t below = op.drop_below;
        const float factor = scale;
        const int count = n / 2;
        MP_ISA_INDEPENDENT
        for (int i = 0; i < count; ++i) {
            const uint32_t both = from[i];
            const uint32_t drawn = random[i];
            float even = numerics::dropout_value(even_of(both), factor, drawn & 0xffffU, below);
            float odd = numerics::dropout_value(odd_of(both), factor, drawn >> 16, below);
            if constexpr (kAccumulate) {
                even = even_of(old[i]) + even;
                odd = odd_of(old[i]) + odd;
            }
            to[i] = join(bf16_pattern(even), bf16_pattern(odd));
        }
    }

    // From `element` on, rounded into `destination`.
    MP_ISA_INLINE void tile(int64_t element, int into, int n, void* destination) const {
        const DType to = op.destination.dtype;
        alignas(64) uint16_t drawn[kTile];
        const uint16_t* bits = drawn + into;
        if (op.drop_below != 0) {
            draw(element, into, n, drawn);
        }
        if (op.drop_below != 0 && op.source.dtype == DType::bf16 && to == DType::bf16 &&
            n % 2 == 0) {
            op.accumulate ? pairs<true>(element, bits, n, destination)
                          : pairs<false>(element, bits, n, destination);
            return;
        }
        alignas(64) float wide[kTile];
        alignas(64) float result[kTile];
        const FloatInMemory* x = as_floats(op.source, element, wide, n);
        if (op.drop_below == 0) {
            multiply(x, scale, n, result);
        } else {
            drop(x, bits, n, result);
        }
        if (op.accumulate) {
            add(as_floats(op.destination, element, wide, n), n, result);
        }
        narrow_tile<numerics::Narrowing::nearest>(to, result, destination, n, nullptr);
    }
};

inline void dropout_chunk(const DropoutJob& job) {
    const DropoutDesc& op = *job.op;
    const Dropout dropout{op, op.key(), numerics::dropout_scale(op.drop_below)};
    const int64_t size = dtype_size(op.destination.dtype);
    // The first tile ends where a block of random bits does, so that the others begin there.
    auto into = static_cast<int>((op.first_element + job.start) % 8);
    for (int64_t done = 0; done < job.count;) {
        const int64_t element = job.start + done;
        const int n = min_int(job.count - done, kTile - into);
        void* destination = element_address(op.destination.data, op.destination.dtype, element);
        if (may_stream(job.stream, destination, n * size)) {
            alignas(64) unsigned char buffer[sizeof(float) * kTile];
            dropout.tile(element, into, n, buffer);
            stream_lines(destination, buffer, n * size);
        } else {
            dropout.tile(element, into, n, destination);
        }
        done += n;
        into = 0;
    }
    if (job.stream) {
        finish_stream();
    }
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
