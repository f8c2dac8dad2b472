// SPDX-License-Identifier: Apache-2.0
// fp8 and saturating fp16 conversions by vector instructions, bit-equal to numerics/fp8.hpp and
// numerics/fp16.hpp on every input. They return how many elements they did; the rest, and targets
// without the instructions, take the plain loops.
#pragma once

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "kernels/chunk/base.hpp"

namespace mp::kernels::MP_CHUNK_NAMESPACE {

using FloatInMemory = InMemory<DType::fp32>::type;

#if defined(__AVX512F__) && defined(__AVX512BW__)

// Round to nearest even, into a format with kMantissaBits and smallest normal 2^kMinExponent.
// Adding 2^(e + 23 - kMantissaBits), where 2^e is the value's binade and at least the smallest
// normal one, rounds it to a multiple q of its last place and leaves q in the low bits of the sum;
// the code is q plus the binade's number. The rounding mode is part of the instruction, so the
// caller's setting does not matter, and neither do the modes for subnormals: fp32 ones are 0 in
// every format here.
template <int kMantissaBits, int kMinExponent> struct EncodeVector {
    // `limit`: the largest magnitude, which the caller's overflow rule gives; `nan`: code of a NaN
    // without sign, as bits to set and bits of the input's payload to keep.
    static MP_CHUNK_INLINE __m128i encode(__m512 x, float limit, int nan, int payload) {
        constexpr int kDrop = 23 - kMantissaBits;
        constexpr int kSmallest = (127 + kMinExponent) << 23;
        const __m512i bits = _mm512_castps_si512(x);
        const __m512i magnitude =
            _mm512_min_epu32(_mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)),
                             _mm512_castps_si512(_mm512_set1_ps(limit)));
        const __m512i binade =
            _mm512_max_epi32(_mm512_and_si512(magnitude, _mm512_set1_epi32(0x7f800000)),
                             _mm512_set1_epi32(kSmallest));
        const __m512i magic = _mm512_add_epi32(binade, _mm512_set1_epi32(kDrop << 23));
        const __m512 sum =
            _mm512_add_round_ps(_mm512_castsi512_ps(magnitude), _mm512_castsi512_ps(magic),
                                _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const __m512i q = _mm512_sub_epi32(_mm512_castps_si512(sum), magic);
        const __m512i base =
            _mm512_srli_epi32(_mm512_sub_epi32(binade, _mm512_set1_epi32(kSmallest)), kDrop);
        __m512i code = _mm512_add_epi32(q, base);
        const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
        if (__builtin_expect(is_nan != 0, 0)) {
            const __m512i kept =
                _mm512_and_si512(_mm512_srli_epi32(bits, kDrop), _mm512_set1_epi32(payload));
            code = _mm512_mask_or_epi32(code, is_nan, kept, _mm512_set1_epi32(nan));
        }
        // (sign >> 24 & 0x80) | code
        code = _mm512_ternarylogic_epi32(code, _mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80),
                                         0xF8);
        return _mm512_cvtepi32_epi8(code);
    }
};

template <bool kSaturate>
MP_CHUNK_INLINE int narrow_e4m3_vector(const FloatInMemory* values, void* destination, int n) {
    char* to = static_cast<char*>(destination);
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        // 480 would be the value after 448; its pattern is the NaN.
        const __m128i codes = EncodeVector<3, -6>::encode(_mm512_loadu_ps(values + i),
                                                          kSaturate ? numerics::kE4m3Max : 480.0F,
                                                          numerics::kE4m3Nan, 0);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), codes);
    }
    return i;
}

template <bool kSaturate>
MP_CHUNK_INLINE int narrow_e5m2_vector(const FloatInMemory* values, void* destination, int n) {
    char* to = static_cast<char*>(destination);
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        // 2^16 would be the value after 57344; its pattern is infinity.
        const __m128i codes = EncodeVector<2, -14>::encode(
            _mm512_loadu_ps(values + i), kSaturate ? numerics::kE5m2Max : 65536.0F,
            numerics::kE5m2QuietNan, 3);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), codes);
    }
    return i;
}

#else

template <bool kSaturate> MP_CHUNK_INLINE int narrow_e4m3_vector(const FloatInMemory*, void*, int) {
    return 0;
}
template <bool kSaturate> MP_CHUNK_INLINE int narrow_e5m2_vector(const FloatInMemory*, void*, int) {
    return 0;
}

#endif

#if defined(__F16C__)

MP_CHUNK_INLINE void store_halves_as_floats(__m256i halves, __m256 scale, FloatInMemory* to) {
    const __m256 low = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
    const __m256 high = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
    _mm256_storeu_ps(to, _mm256_mul_ps(low, scale));
    _mm256_storeu_ps(to + 8, _mm256_mul_ps(high, scale));
}

// E4M3 with its exponent field moved up by one bit less than its sign is an fp16 number, subnormals
// included, of 2^-8 times the value: the difference of the two exponent biases.
MP_CHUNK_INLINE int widen_e4m3_vector(const void* source, FloatInMemory* values, int n) {
    const char* from = static_cast<const char*>(source);
    const __m256i nan = _mm256_set1_epi16(0x7f00);
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
        const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8);
        const __m256i magnitude = _mm256_and_si256(shifted, nan);
        const __m256i sign = _mm256_xor_si256(shifted, magnitude);
        const __m256i is_nan = _mm256_cmpeq_epi16(magnitude, nan);
        // 0x3f80, what a NaN's code becomes, to the quiet NaN 0x7e00.
        const __m256i change = _mm256_and_si256(is_nan, _mm256_set1_epi16(0x3f80 ^ 0x7e00));
        const __m256i halves =
            _mm256_xor_si256(_mm256_or_si256(_mm256_srli_epi16(magnitude, 1), sign), change);
        store_halves_as_floats(halves, _mm256_set1_ps(256.0F), values + i);
    }
    return i;
}

// E5M2 is the upper byte of fp16.
MP_CHUNK_INLINE int widen_e5m2_vector(const void* source, FloatInMemory* values, int n) {
    const char* from = static_cast<const char*>(source);
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
        const __m256i halves = _mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8);
        _mm256_storeu_ps(values + i, _mm256_cvtph_ps(_mm256_castsi256_si128(halves)));
        _mm256_storeu_ps(values + i + 8, _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)));
    }
    return i;
}

MP_CHUNK_INLINE int widen_fp16_vector(const void* source, FloatInMemory* values, int n) {
    const char* from = static_cast<const char*>(source);
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * i));
        _mm256_storeu_ps(values + i, _mm256_cvtph_ps(codes));
    }
    return i;
}

// min and max return their second operand where one is a NaN.
template <bool kSaturate>
MP_CHUNK_INLINE int narrow_fp16_vector(const FloatInMemory* values, void* destination, int n) {
    char* to = static_cast<char*>(destination);
    const __m256 limit = _mm256_set1_ps(numerics::kFp16Max);
    const __m256 lowest = _mm256_set1_ps(-numerics::kFp16Max);
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 x = _mm256_loadu_ps(values + i);
        if constexpr (kSaturate) {
            x = _mm256_max_ps(lowest, _mm256_min_ps(limit, x));
        }
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i),
                         _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    }
    return i;
}

#else

MP_CHUNK_INLINE int widen_e4m3_vector(const void*, FloatInMemory*, int) { return 0; }
MP_CHUNK_INLINE int widen_e5m2_vector(const void*, FloatInMemory*, int) { return 0; }
MP_CHUNK_INLINE int widen_fp16_vector(const void*, FloatInMemory*, int) { return 0; }
template <bool kSaturate> MP_CHUNK_INLINE int narrow_fp16_vector(const FloatInMemory*, void*, int) {
    return 0;
}

#endif

} // namespace mp::kernels::MP_CHUNK_NAMESPACE
