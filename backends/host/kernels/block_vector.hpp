// SPDX-License-Identifier: Apache-2.0
// E4M3 codes of a block whose scale is amax / 448 (numerics/block_state.hpp) by AVX-512. They return how many
// elements they did; the rest, and other targets, take the plain loops.
#pragma once

#include "host/kernels/lookup_vector.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

#if defined(MP_ISA_AVX512)

// fp8_vector.hpp's rounding for 16 numbers that are finite and no larger than 448 and a few ulps: no limit, no NaN.
// The smallest normal number's 121 << 3, which the code does not count, is a part of the magic number; being even it
// leaves ties alone.
MP_ISA_INLINE __m128i encode_small_e4m3(__m512 magnitude) {
    constexpr int kDrop = 20;
    constexpr int kSmallest = 121 << 23;
    constexpr int kBias = -(kSmallest >> kDrop) & 0xff;
    static_assert(kBias % 2 == 0);
    const __m512i exponent = _mm512_and_si512(_mm512_castps_si512(magnitude),
                                              _mm512_set1_epi32(static_cast<int>(0x7f800000U)));
    const __m512i binade = _mm512_max_epi32(exponent, _mm512_set1_epi32(kSmallest));
    const __m512i magic = _mm512_add_epi32(binade, _mm512_set1_epi32((kDrop << 23) + kBias));
    const __m512 sum = _mm512_add_round_ps(magnitude, _mm512_castsi512_ps(magic),
                                           _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm512_cvtepi32_epi8(
        _mm512_add_epi32(_mm512_castps_si512(sum), _mm512_srli_epi32(binade, kDrop)));
}

// Codes of numerics::e4m3_quotient, where the block is finite.
template <bool kSigned>
MP_ISA_INLINE int encode_e4m3_quotients(const float* values, float scale, void* codes, int n) {
    if (!(scale < 0x1p127F)) {
        return 0;
    }
    char* to = static_cast<char*>(codes);
    const __m512 divisor = _mm512_set1_ps(scale);
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m512 x = _mm512_loadu_ps(values + i);
        __m512 quotient = _mm512_div_ps(x, divisor);
        if constexpr (!kSigned) {
            const __mmask16 is_positive = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GT_OQ);
            quotient = _mm512_mask_max_ps(quotient, is_positive, quotient, _mm512_set1_ps(0x1p-9F));
        }
        const __mmask16 is_negative = _mm512_movepi32_mask(_mm512_castps_si512(x));
        const __m128i code = encode_small_e4m3(_mm512_abs_ps(quotient));
        const __m128i negative = _mm_add_epi8(code, _mm_set1_epi8(static_cast<char>(0x80)));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                         _mm_mask_mov_epi8(code, is_negative, negative));
    }
    return i;
}

#else

template <bool kSigned> MP_ISA_INLINE int encode_e4m3_quotients(const float*, float, void*, int) {
    return 0;
}

#endif

} // namespace mp::backends::host::MP_ISA_NAMESPACE
