// SPDX-License-Identifier: Apache-2.0
// bf16 to fp16 and back in lanes of 16 bits by AVX-512BW, bit-equal to numerics/fp16.hpp and numerics/bf16.hpp. They
// return how many elements they did: up to the first vector with one that is more than a moved exponent. The rest, and
// other targets, take the way through fp32.
#pragma once

#include "kernels/chunk/fp8_words.hpp"

namespace mp::kernels::MP_CHUNK_NAMESPACE {

#if defined(__AVX512BW__)

// fp16 has room for bf16's mantissa. What rounds to 0 becomes 0; subnormal codes, infinity and what is too large end it.
MP_CHUNK_INLINE int bf16_to_fp16_words(const void* source, void* destination, int n) {
    const __m512i rebias = held_words((127 - 15) << 7);
    const __m512i smallest = held_words(((127 - 25) << 7) + 1); // above a tie with 0
    const __m512i subnormals = held_words((11 << 7) - 1);       // from there to 2^-14
    const __m512i too_large = held_words((127 + 16) << 7);
    const __m512i sign = held_words(0x8000);
    const char* from = static_cast<const char*>(source);
    char* to = static_cast<char*>(destination);
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        const __m512i x = _mm512_loadu_si512(from + 2 * i);
        const __m512i magnitude = _mm512_andnot_si512(sign, x);
        const __m512i above = _mm512_sub_epi16(magnitude, smallest);
        const __mmask32 is_subnormal = _mm512_cmplt_epu16_mask(above, subnormals);
        const __mmask32 is_large = _mm512_cmpge_epu16_mask(magnitude, too_large);
        if (__builtin_expect((is_subnormal | is_large) != 0, 0)) {
            break;
        }
        const __m512i moved = _mm512_slli_epi16(_mm512_subs_epu16(magnitude, rebias), 3);
        // moved | (x & sign)
        _mm512_storeu_si512(to + 2 * i, _mm512_ternarylogic_epi32(moved, x, sign, 0xF8));
    }
    return i;
}

// Three bits of fp16's mantissa are rounded away, to nearest even. Subnormal numbers, infinity and NaN end it.
MP_CHUNK_INLINE int fp16_to_bf16_words(const void* source, void* destination, int n) {
    const __m512i rebias = held_words((127 - 15) << 7);
    const __m512i infinity = held_words(numerics::kFp16Infinity);
    const __m512i subnormals = held_words((1 << 10) - 1);
    const __m512i one = held_words(1);
    const __m512i unit = held_words(1 << 3);
    const __m512i below_half = held_words(3);
    const __m512i sign = held_words(0x8000);
    const char* from = static_cast<const char*>(source);
    char* to = static_cast<char*>(destination);
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        const __m512i x = _mm512_loadu_si512(from + 2 * i);
        const __m512i magnitude = _mm512_andnot_si512(sign, x);
        const __mmask32 is_subnormal =
            _mm512_cmplt_epu16_mask(_mm512_sub_epi16(magnitude, one), subnormals);
        const __mmask32 is_large = _mm512_cmpge_epu16_mask(magnitude, infinity);
        if (__builtin_expect((is_subnormal | is_large) != 0, 0)) {
            break;
        }
        const __m512i bumped = _mm512_add_epi16(magnitude, below_half);
        const __m512i rounded = _mm512_srli_epi16(
            _mm512_mask_add_epi16(bumped, _mm512_test_epi16_mask(x, unit), bumped, one), 3);
        const __mmask32 is_number = _mm512_test_epi16_mask(magnitude, magnitude); // not 0
        const __m512i moved = _mm512_maskz_add_epi16(is_number, rounded, rebias);
        // moved | (x & sign)
        _mm512_storeu_si512(to + 2 * i, _mm512_ternarylogic_epi32(moved, x, sign, 0xF8));
    }
    return i;
}

#else

MP_CHUNK_INLINE int bf16_to_fp16_words(const void*, void*, int) { return 0; }
MP_CHUNK_INLINE int fp16_to_bf16_words(const void*, void*, int) { return 0; }

#endif

} // namespace mp::kernels::MP_CHUNK_NAMESPACE
