// SPDX-License-Identifier: Apache-2.0
// Look-ups in tables of 16-bit numbers by AVX-512, for fp32 numbers one half at a time: a gather costs several times
// as much where each lane of it is a load of its own.
#pragma once

#include "host/kernels/base.hpp"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define MP_ISA_AVX512 1
#include <immintrin.h>

namespace mp::backends::host::MP_ISA_NAMESPACE {

// The halves of fp32 patterns.
template <int kCount> struct FloatHalves {
    alignas(64) uint16_t high[kCount];
    alignas(64) uint16_t low[kCount];
};

template <int kCount, class ValueOf>
constexpr FloatHalves<kCount> make_halves(const ValueOf& value_of) {
    FloatHalves<kCount> halves{};
    for (int i = 0; i < kCount; ++i) {
        const uint32_t u = numerics::bits_from_float(value_of(i));
        halves.high[i] = static_cast<uint16_t>(u >> 16);
        halves.low[i] = static_cast<uint16_t>(u);
    }
    return halves;
}

// 32 of the 128 entries of a table. Indices are words, of which bits 0 to 5 are read here.
MP_ISA_INLINE __m512i lookup128(const uint16_t* table, __m512i index, __mmask32 bit6) {
    const __m512i lower =
        _mm512_permutex2var_epi16(_mm512_load_si512(table), index, _mm512_load_si512(table + 32));
    const __m512i upper = _mm512_permutex2var_epi16(_mm512_load_si512(table + 64), index,
                                                    _mm512_load_si512(table + 96));
    return _mm512_mask_mov_epi16(lower, bit6, upper);
}

// Of 256 entries; bit7 as bit6.
MP_ISA_INLINE __m512i lookup256(const uint16_t* table, __m512i index, __mmask32 bit6,
                                __mmask32 bit7) {
    return _mm512_mask_mov_epi16(lookup128(table, index, bit6), bit7,
                                 lookup128(table + 128, index, bit6));
}

// 32 codes of a byte as words, in the order for multiply_halves(): joining works within 128 bits, so elements 0 to 3
// and 16 to 19 go there together.
MP_ISA_INLINE __m512i load_codes(const void* codes) {
    const __m256i bytes = _mm256_loadu_si256(static_cast<const __m256i*>(codes));
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7),
                                    _mm512_cvtepu8_epi16(bytes));
}

// Joins halves to 32 numbers and stores their products with the factor.
MP_ISA_INLINE void multiply_halves(__m512i high, __m512i low, __m512 factor, void* to) {
    const __m512 first = _mm512_castsi512_ps(_mm512_unpacklo_epi16(low, high));
    const __m512 second = _mm512_castsi512_ps(_mm512_unpackhi_epi16(low, high));
    _mm512_storeu_ps(to, _mm512_mul_ps(first, factor));
    _mm512_storeu_ps(static_cast<char*>(to) + 64, _mm512_mul_ps(second, factor));
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE

#endif
