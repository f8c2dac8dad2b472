// SPDX-License-Identifier: Apache-2.0
// Blocks of ggml's types to fp32, a vector of elements of one scale at a time: the numbers of numerics/block_types.hpp, and some
// NaN for its NaN.
#pragma once

#if defined(__AVX2__) && defined(__F16C__)
#include <immintrin.h>
#endif

#include "host/kernels/base.hpp"
#include "numerics/block_types.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

#if defined(__AVX2__) && defined(__F16C__)

#if defined(__AVX512F__)
inline constexpr int kBlockLanes = 16;
#else
inline constexpr int kBlockLanes = 8;
#endif
typedef int32_t BlockInts __attribute__((vector_size(4 * kBlockLanes)));
typedef float BlockFloats __attribute__((vector_size(4 * kBlockLanes)));

MP_ISA_INLINE BlockInts ints_at(const uint8_t* from) {
#if defined(__AVX512F__)
    return (BlockInts)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)from));
#else
    return (BlockInts)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)from));
#endif
}
MP_ISA_INLINE BlockInts ints_at(const int8_t* from) {
#if defined(__AVX512F__)
    return (BlockInts)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)from));
#else
    return (BlockInts)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)from));
#endif
}

// 0, 1, 2 and so on.
MP_ISA_INLINE BlockInts places() {
    BlockInts places;
    constexpr int32_t kPlaces[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    __builtin_memcpy(&places, kPlaces, sizeof(places));
    return places;
}

// As numerics::detail::twice_e2m1.
MP_ISA_INLINE BlockInts twice_e2m1(const BlockInts& codes) {
    const BlockInts exponent = codes >> 1 & 3;
    const BlockInts is_normal = -(exponent != 0);
    const BlockInts twice = (is_normal * 2 | (codes & 1)) << (exponent - is_normal);
    const BlockInts sign = -(codes >> 3);
    return (twice ^ sign) - sign;
}

template <DType kDType>
MP_ISA_INLINE BlockInts codes_at(const numerics::BlockPart<kDType>& part, int i) {
    if constexpr (kDType == DType::q8_0) {
        return ints_at(part.codes + i);
    } else if constexpr (kDType == DType::q6_k) {
        const BlockInts low = ints_at(part.low + i) >> part.low_shift & 0xF;
        return (low | (ints_at(part.high + i) >> part.high_shift & 3) << 4) - 32;
    } else if constexpr (kDType == DType::q4_k || kDType == DType::q5_k) {
        const BlockInts low = ints_at(part.codes + i) >> part.shift & 0xF;
        return kDType == DType::q4_k ? low
                                     : low | (ints_at(part.fifths + i) >> part.place & 1) << 4;
    } else {
        BlockInts codes = ints_at(part.codes + i) >> part.shift & 0xF;
        if constexpr (part.kHasFive) {
            const BlockInts fifths = BlockInts{} + static_cast<int32_t>(part.fifth >> i);
            codes |= (fifths >> places() & 1) << 4;
        }
        if constexpr (part.kIsMx) {
            return twice_e2m1(codes);
        }
        return part.kHasMin ? codes : codes - (part.kHasFive ? 16 : 8);
    }
}

// All elements of one block.
template <DType kDType> MP_ISA_INLINE void widen_block(const uint8_t* block, float* out) {
    using Part = numerics::BlockPart<kDType>;
    for (int p = 0; p < static_cast<int>(type_block(kDType).elements) / Part::kElements; ++p) {
        const Part part(block, p);
        for (int i = 0; i < Part::kElements; i += kBlockLanes) {
            BlockFloats values =
                __builtin_convertvector(codes_at(part, i), BlockFloats) * part.scale;
            if constexpr (kDType == DType::q4_k || kDType == DType::q5_k) {
                values -= part.min;
            } else if constexpr (kDType == DType::q4_1 || kDType == DType::q5_1) {
                values += part.min;
            }
            __builtin_memcpy(out + p * Part::kElements + i, &values, sizeof(values));
        }
    }
}

#else

template <DType kDType> MP_ISA_INLINE void widen_block(const uint8_t* block, float* out) {
    numerics::load_block<kDType>(block, out);
}

#endif

} // namespace mp::backends::host::MP_ISA_NAMESPACE
