// SPDX-License-Identifier: Apache-2.0
// fp16 both ways and fp8 to fp32 by the F16C instructions, bit-equal to numerics/fp16.hpp and
// numerics/fp8.hpp on every input. They return how many elements they did; the rest, and targets
// without the instructions, take the plain loops.
#pragma once

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "host/kernels/lookup_vector.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

using FloatInMemory = InMemory<DType::fp32>::type;

#if defined(__F16C__)

// The intrinsics take any address, but are declared for floats at their own alignment.
MP_ISA_INLINE __m256 load_eight(const FloatInMemory* at) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(at));
}
MP_ISA_INLINE void store_eight(FloatInMemory* at, __m256 x) {
    _mm256_storeu_ps(reinterpret_cast<float*>(at), x);
}

#if defined(MP_ISA_AVX512)

// The magnitudes fit bf16.
inline constexpr FloatHalves<128> kE4m3Halves =
    make_halves<128>([](int i) { return numerics::e4m3_to_float(static_cast<uint8_t>(i)); });

// The numbers times `factor`.
MP_ISA_INLINE int widen_e4m3_vector(const void* source, float factor, FloatInMemory* values,
                                    int n) {
    const char* from = static_cast<const char*>(source);
    const __m512 factors = _mm512_set1_ps(factor);
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        const __m512i codes = load_codes(from + i);
        const __mmask32 bit6 = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(64));
        const __m512i magnitude = lookup128(kE4m3Halves.high, codes, bit6);
        // magnitude | (codes << 8 & sign)
        const __m512i high =
            _mm512_ternarylogic_epi32(magnitude, _mm512_slli_epi16(codes, 8),
                                      _mm512_set1_epi16(static_cast<short>(0x8000)), 0xF8);
        multiply_halves(high, _mm512_setzero_si512(), factors, values + i);
    }
    return i;
}

#else

// 2^8 times the halves, times the factor: the first product is exact.
MP_ISA_INLINE void store_halves_as_floats(__m256i halves, float factor, FloatInMemory* to) {
    const __m256 factors = _mm256_set1_ps(factor);
    const __m256 rebias = _mm256_set1_ps(256.0F);
    const __m256 low = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
    const __m256 high = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
    store_eight(to, _mm256_mul_ps(_mm256_mul_ps(low, rebias), factors));
    store_eight(to + 8, _mm256_mul_ps(_mm256_mul_ps(high, rebias), factors));
}

// The numbers times `factor`. E4M3 with its exponent field moved up by one bit less than its sign is an fp16 number, subnormals
// included, of 2^-8 times the value: the difference of the two exponent biases.
MP_ISA_INLINE int widen_e4m3_vector(const void* source, float factor, FloatInMemory* values,
                                    int n) {
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
        store_halves_as_floats(halves, factor, values + i);
    }
    return i;
}

#endif

// E5M2 is the upper byte of fp16.
MP_ISA_INLINE int widen_e5m2_vector(const void* source, FloatInMemory* values, int n) {
    const char* from = static_cast<const char*>(source);
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
        const __m256i halves = _mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8);
        store_eight(values + i, _mm256_cvtph_ps(_mm256_castsi256_si128(halves)));
        store_eight(values + i + 8, _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)));
    }
    return i;
}

MP_ISA_INLINE int widen_fp16_vector(const void* source, FloatInMemory* values, int n) {
    const char* from = static_cast<const char*>(source);
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * i));
        store_eight(values + i, _mm256_cvtph_ps(codes));
    }
    return i;
}

// min and max return their second operand where one is a NaN.
template <bool kSaturate>
MP_ISA_INLINE int narrow_fp16_vector(const FloatInMemory* values, void* destination, int n) {
    char* to = static_cast<char*>(destination);
    const __m256 limit = _mm256_set1_ps(numerics::kFp16Max);
    const __m256 lowest = _mm256_set1_ps(-numerics::kFp16Max);
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 x = load_eight(values + i);
        if constexpr (kSaturate) {
            x = _mm256_max_ps(lowest, _mm256_min_ps(limit, x));
        }
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i),
                         _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    }
    return i;
}

#else

MP_ISA_INLINE int widen_e4m3_vector(const void*, float, FloatInMemory*, int) { return 0; }
MP_ISA_INLINE int widen_e5m2_vector(const void*, FloatInMemory*, int) { return 0; }
MP_ISA_INLINE int widen_fp16_vector(const void*, FloatInMemory*, int) { return 0; }
template <bool kSaturate> MP_ISA_INLINE int narrow_fp16_vector(const FloatInMemory*, void*, int) {
    return 0;
}

#endif

} // namespace mp::backends::host::MP_ISA_NAMESPACE
