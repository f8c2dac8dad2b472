// SPDX-License-Identifier: Apache-2.0
// The largest |x| of each of 16 blocks in a row by AVX-512. A block's maximum stays a vector until all 16 are, and the
// vectors are then folded together: three instructions a block instead of ten.
#pragma once

#include "host/kernels/amax.hpp"

#if defined(__AVX512BW__)
#include <immintrin.h>
#endif

namespace mp::backends::host::MP_ISA_NAMESPACE {

#if defined(__AVX512F__) && defined(__AVX512BW__)

// Lanes of kDType's own width.
template <DType kDType> MP_ISA_INLINE __m512i larger(__m512i a, __m512i b) {
    return kDType == DType::fp32 ? _mm512_max_epi32(a, b) : _mm512_max_epi16(a, b);
}

// The magnitudes of one vector; fp16's NaN become quiet as they do when widened.
template <DType kDType> MP_ISA_INLINE __m512i load_magnitudes(const void* at) {
    const __m512i x = _mm512_loadu_si512(at);
    if constexpr (kDType == DType::fp32) {
        return _mm512_and_si512(x, _mm512_set1_epi32(0x7fffffff));
    } else {
        const __m512i magnitude = _mm512_and_si512(x, _mm512_set1_epi16(0x7fff));
        if constexpr (kDType == DType::bf16) {
            return magnitude;
        } else {
            const __mmask32 is_nan =
                _mm512_cmpgt_epi16_mask(magnitude, _mm512_set1_epi16(numerics::kFp16Infinity));
            return _mm512_mask_mov_epi16(magnitude, is_nan,
                                         _mm512_or_si512(magnitude, _mm512_set1_epi16(0x0200)));
        }
    }
}

// Lane i of 32 bits of the result: the maxima of row i. Each step halves the lanes that a row has and joins two rows.
template <DType kDType> MP_ISA_INLINE __m512i fold_rows(__m512i rows[16]) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) { // rows i and i + 8, by halves
        rows[i] = larger<kDType>(_mm512_mask_blend_epi64(0xf0, rows[i], rows[i + 8]),
                                 _mm512_shuffle_i64x2(rows[i], rows[i + 8], 0x4e));
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) { // and i + 4: quarters
        rows[i] = larger<kDType>(_mm512_shuffle_i64x2(rows[i], rows[i + 4], 0x88),
                                 _mm512_shuffle_i64x2(rows[i], rows[i + 4], 0xdd));
    }
    // A quarter now belongs to rows i, i + 8, i + 4, i + 12.
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
        rows[i] = larger<kDType>(_mm512_unpacklo_epi64(rows[i], rows[i + 2]),
                                 _mm512_unpackhi_epi64(rows[i], rows[i + 2]));
    }
    const __m512 first = _mm512_castsi512_ps(rows[0]);
    const __m512 second = _mm512_castsi512_ps(rows[1]);
    const __m512i folded =
        larger<kDType>(_mm512_castps_si512(_mm512_shuffle_ps(first, second, 0x88)),
                       _mm512_castps_si512(_mm512_shuffle_ps(first, second, 0xdd)));
    // Lanes 4 q + j: row 8 * (q & 1) + 4 * (q >> 1), and of those the ones with 0, 2, 1, 3 added.
    const __m512i order = _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15);
    return _mm512_permutexvar_epi32(order, folded);
}

// The fp32 patterns of 16 folded maxima.
template <DType kDType> MP_ISA_INLINE __m512i widen_folded(__m512i folded) {
    if constexpr (kDType == DType::fp32) {
        return folded;
    } else {
        const __m512i largest = _mm512_max_epi16(folded, _mm512_slli_epi32(folded, 16));
        if constexpr (kDType == DType::bf16) {
            return _mm512_and_si512(largest, _mm512_set1_epi32(0x7fff0000));
        } else {
            return _mm512_castps_si512(
                _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(largest, 16))));
        }
    }
}

// Raises `largest` of the first blocks of kWidth elements, whose number is the result.
template <DType kDType, int kWidth>
MP_ISA_INLINE int64_t raise_16_blocks(const void* row, int64_t blocks, uint32_t* largest) {
    constexpr int kBytes = kWidth * static_cast<int>(dtype_size(kDType));
    if constexpr (kBytes % 64 != 0) {
        return 0;
    }
    const char* from = static_cast<const char*>(row);
    int64_t b = 0;
    for (; b + 16 <= blocks; b += 16) {
        __m512i rows[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
            const char* block = from + (b + i) * kBytes;
            rows[i] = load_magnitudes<kDType>(block);
            for (int at = 64; at < kBytes; at += 64) {
                rows[i] = larger<kDType>(rows[i], load_magnitudes<kDType>(block + at));
            }
        }
        const __m512i found = widen_folded<kDType>(fold_rows<kDType>(rows));
        _mm512_storeu_si512(largest + b, _mm512_max_epu32(found, _mm512_loadu_si512(largest + b)));
    }
    return b;
}

#else

template <DType kDType, int kWidth>
MP_ISA_INLINE int64_t raise_16_blocks(const void*, int64_t, uint32_t*) {
    return 0;
}

#endif

} // namespace mp::backends::host::MP_ISA_NAMESPACE
