// SPDX-License-Identifier: Apache-2.0
// bf16 to fp16 and back in lanes of 16 bits by AVX-512BW, bit-equal to numerics/fp16.hpp and numerics/bf16.hpp. They
// return how many elements they did: up to the first vector with one that is more than a moved exponent. The rest, and
// other targets, take the way through fp32.
#pragma once

#include "host/kernels/fp8_words.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

#if defined(__AVX512BW__)

// Magnitudes from `first` on, `count` of them, and those from `too_large` on end it. What others become but for their
// sign says `move(x, magnitude)`.
template <typename Move>
MP_ISA_INLINE int move_words(const void* source, void* destination, int n, int first, int count,
                             int too_large, Move&& move) {
    const __m512i first_ending = held_words(first);
    const __m512i ending = held_words(count);
    const __m512i large = held_words(too_large);
    const __m512i sign = held_words(0x8000);
    const char* from = static_cast<const char*>(source);
    char* to = static_cast<char*>(destination);
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        const __m512i x = _mm512_loadu_si512(from + 2 * i);
        const __m512i magnitude = _mm512_andnot_si512(sign, x);
        const __mmask32 is_subnormal =
            _mm512_cmplt_epu16_mask(_mm512_sub_epi16(magnitude, first_ending), ending);
        const __mmask32 is_large = _mm512_cmpge_epu16_mask(magnitude, large);
        if (__builtin_expect((is_subnormal | is_large) != 0, 0)) {
            break;
        }
        // move(...) | (x & sign)
        _mm512_storeu_si512(to + 2 * i,
                            _mm512_ternarylogic_epi32(move(x, magnitude), x, sign, 0xF8));
    }
    return i;
}

// fp16 has room for bf16's mantissa. What rounds to 0 becomes 0; subnormal codes, infinity and what is too large end it.
MP_ISA_INLINE int bf16_to_fp16_words(const void* source, void* destination, int n) {
    constexpr int kSmallest = ((127 - 25) << 7) + 1; // above a tie with 0
    constexpr int kSubnormals = (11 << 7) - 1;       // from there to 2^-14
    const __m512i rebias = held_words((127 - 15) << 7);
    return move_words(source, destination, n, kSmallest, kSubnormals, (127 + 16) << 7,
                      [&](__m512i /*x*/, __m512i magnitude) MP_INLINED {
                          return _mm512_slli_epi16(_mm512_subs_epu16(magnitude, rebias), 3);
                      });
}

// Three bits of fp16's mantissa are rounded away, to nearest even. Subnormal numbers, infinity and NaN end it.
MP_ISA_INLINE int fp16_to_bf16_words(const void* source, void* destination, int n) {
    const __m512i rebias = held_words((127 - 15) << 7);
    const __m512i one = held_words(1);
    const __m512i unit = held_words(1 << 3);
    const __m512i below_half = held_words(3);
    return move_words(source, destination, n, 1, (1 << 10) - 1, numerics::kFp16Infinity,
                      [&](__m512i x, __m512i magnitude) MP_INLINED {
                          const __mmask32 is_odd = _mm512_test_epi16_mask(x, unit);
                          const __m512i bumped = _mm512_add_epi16(magnitude, below_half);
                          const __m512i rounded = _mm512_srli_epi16(
                              _mm512_mask_add_epi16(bumped, is_odd, bumped, one), 3);
                          const __mmask32 is_number = _mm512_test_epi16_mask(magnitude, magnitude);
                          return _mm512_maskz_add_epi16(is_number, rounded, rebias); // 0 of 0
                      });
}

#else

MP_ISA_INLINE int bf16_to_fp16_words(const void*, void*, int) { return 0; }
MP_ISA_INLINE int fp16_to_bf16_words(const void*, void*, int) { return 0; }

#endif

} // namespace mp::backends::host::MP_ISA_NAMESPACE
