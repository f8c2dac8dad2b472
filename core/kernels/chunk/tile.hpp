// SPDX-License-Identifier: Apache-2.0
// A tile of elements to fp32 and back. The dtype is chosen once a tile, so the loops have none
// inside and the compiler vectorizes them. fp16 uses the conversion instructions where the target
// has them: they are bit-equal to numerics/fp16.hpp, which the numerics tests show.
#pragma once

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "kernels/chunk/base.hpp"

namespace mp::kernels::MP_CHUNK_NAMESPACE {

// fp32 as it may lie in the caller's memory; tiles are read through it too.
using FloatInMemory = InMemory<DType::fp32>::type;

enum class Rounding { nearest, saturating, stochastic };

// Random bits for a tile: `high` alone gives 16 bits an element, both together 32.
struct TileBits {
    uint16_t high[kTile];
    uint16_t low[kTile];
};

template <class Codec, Rounding kRounding>
MP_CHUNK_INLINE typename Codec::storage round_one(float x, uint32_t bits) {
    if constexpr (kRounding == Rounding::stochastic) {
        return Codec::store_sr(x, bits);
    } else if constexpr (kRounding == Rounding::saturating) {
        return Codec::store_sat(x);
    } else {
        return Codec::store_nonsat(x);
    }
}

// The lower half is not even read where the format needs 16 bits only.
template <DType kDType> MP_CHUNK_INLINE uint32_t random_of(const TileBits& bits, int i) {
    const uint32_t high = static_cast<uint32_t>(bits.high[i]) << 16;
    return kDType == DType::bf16 ? high : (high | bits.low[i]);
}

template <DType kDType> struct TileCodec {
    using Codec = numerics::Codec<kDType>;
    using Memory = typename InMemory<kDType>::type;

    static MP_CHUNK_INLINE void widen(const void* source, float* values, int n) {
        const Memory* __restrict from = static_cast<const Memory*>(source);
        float* __restrict to = values;
        for (int i = 0; i < n; ++i) {
            to[i] = Codec::load(from[i]);
        }
    }

    template <Rounding kRounding>
    static MP_CHUNK_INLINE void narrow(const FloatInMemory* values, void* destination, int n,
                                       const TileBits* bits) {
        const FloatInMemory* __restrict from = values;
        Memory* __restrict to = static_cast<Memory*>(destination);
        for (int i = 0; i < n; ++i) {
            uint32_t random = 0;
            if constexpr (kRounding == Rounding::stochastic) {
                random = random_of<kDType>(*bits, i);
            }
            to[i] = round_one<Codec, kRounding>(from[i], random);
        }
    }
};

#if defined(__F16C__)
MP_CHUNK_INLINE int widen_fp16_by_instruction(const void* source, float* values, int n) {
    const char* from = static_cast<const char*>(source);
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * i));
        _mm256_storeu_ps(values + i, _mm256_cvtph_ps(codes));
    }
    return i;
}

MP_CHUNK_INLINE int narrow_fp16_by_instruction(const FloatInMemory* values, void* destination, int n) {
    char* to = static_cast<char*>(destination);
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT));
    }
    return i;
}
#endif

template <DType kDType>
MP_CHUNK_INLINE void widen_tile_as(const void* source, float* values, int n) {
    int done = 0;
#if defined(__F16C__)
    if constexpr (kDType == DType::fp16) {
        done = widen_fp16_by_instruction(source, values, n);
    }
#endif
    TileCodec<kDType>::widen(element_address(source, kDType, done), values + done, n - done);
}

template <DType kDType, Rounding kRounding>
MP_CHUNK_INLINE void narrow_tile_as(const FloatInMemory* values, void* destination, int n,
                                    const TileBits* bits) {
    int done = 0;
#if defined(__F16C__)
    if constexpr (kDType == DType::fp16 && kRounding == Rounding::nearest) {
        done = narrow_fp16_by_instruction(values, destination, n);
    }
#endif
    TileCodec<kDType>::template narrow<kRounding>(
        values + done, element_address(destination, kDType, done), n - done, bits);
}

// n <= kTile elements to fp32. Only floating types come here: supports() sees to that.
MP_CHUNK_FUNCTION inline void widen_tile(DType dtype, const void* source, float* values, int n) {
    switch (dtype) {
    case DType::fp32:
        return widen_tile_as<DType::fp32>(source, values, n);
    case DType::fp16:
        return widen_tile_as<DType::fp16>(source, values, n);
    case DType::bf16:
        return widen_tile_as<DType::bf16>(source, values, n);
    case DType::fp8_e4m3:
        return widen_tile_as<DType::fp8_e4m3>(source, values, n);
    case DType::fp8_e5m2:
        return widen_tile_as<DType::fp8_e5m2>(source, values, n);
    default:
        return;
    }
}

template <Rounding kRounding>
MP_CHUNK_FUNCTION inline void narrow_tile(DType dtype, const FloatInMemory* values, void* destination,
                                          int n, const TileBits* bits) {
    switch (dtype) {
    case DType::fp32:
        return narrow_tile_as<DType::fp32, kRounding>(values, destination, n, bits);
    case DType::fp16:
        return narrow_tile_as<DType::fp16, kRounding>(values, destination, n, bits);
    case DType::bf16:
        return narrow_tile_as<DType::bf16, kRounding>(values, destination, n, bits);
    case DType::fp8_e4m3:
        return narrow_tile_as<DType::fp8_e4m3, kRounding>(values, destination, n, bits);
    case DType::fp8_e5m2:
        return narrow_tile_as<DType::fp8_e5m2, kRounding>(values, destination, n, bits);
    default:
        return;
    }
}

} // namespace mp::kernels::MP_CHUNK_NAMESPACE
