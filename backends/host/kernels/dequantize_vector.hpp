// SPDX-License-Identifier: Apache-2.0
// fp8 codes times the scales of their blocks to fp32, bf16 and fp16 by AVX2, 32 at a time, rounded once and bit-equal to
// numerics/quantize.hpp. It returns how many elements it did; the rest, and other targets, take dequantize.hpp's loops.
#pragma once

#include "host/kernels/convert_vector.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

#if defined(__AVX2__) && defined(__F16C__) && !defined(MP_ISA_AVX512)

// Codes whose magnitude is below this are finite; the two formats' exponents in fp16 are off by so much.
template <DType kFrom> struct FiniteCodes;
template <> struct FiniteCodes<DType::fp8_e4m3> {
    static constexpr int kEnd = numerics::kE4m3Nan;
    static constexpr float kRebias = 256.0F;
};
template <> struct FiniteCodes<DType::fp8_e5m2> {
    static constexpr int kEnd = numerics::kE5m2Infinity;
    static constexpr float kRebias = 1.0F;
};

// 16 finite codes as fp16, of 1 / kRebias of their values (widen_e4m3_vector has the reason).
template <DType kFrom> MP_ISA_INLINE __m256i halves_of(const char* at) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    if constexpr (kFrom == DType::fp8_e5m2) {
        return _mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8);
    } else {
        // The sign, which widening repeats, leaves the exponent's place.
        return _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7),
                                _mm256_set1_epi16(static_cast<short>(0xbfff)));
    }
}

// The upper halves of numbers that are no NaN, rounded to nearest even.
MP_ISA_INLINE __m256i bf16_words(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i upper = _mm256_srli_epi32(bits, 16);
    const __m256i is_odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    return _mm256_srli_epi32(
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), is_odd), 16);
}

template <DType kTo> MP_ISA_INLINE void store_sixteen(char* to, __m256 first, __m256 second) {
    if constexpr (kTo == DType::fp32) {
        _mm256_storeu_ps(reinterpret_cast<float*>(to), first);
        _mm256_storeu_ps(reinterpret_cast<float*>(to) + 8, second);
    } else if constexpr (kTo == DType::bf16) {
        const __m256i words = _mm256_packus_epi32(bf16_words(first), bf16_words(second));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(words, 0xD8));
    } else {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                         _mm256_cvtps_ph(first, _MM_FROUND_TO_NEAREST_INT));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to) + 1,
                         _mm256_cvtps_ph(second, _MM_FROUND_TO_NEAREST_INT));
    }
}

template <DType kFrom> MP_ISA_INLINE bool are_finite(const char* at) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    const __m256i magnitude = _mm256_and_si256(codes, _mm256_set1_epi8(0x7f));
    const __m256i beyond =
        _mm256_cmpgt_epi8(magnitude, _mm256_set1_epi8(FiniteCodes<kFrom>::kEnd - 1));
    return _mm256_testz_si256(beyond, beyond) != 0;
}

// Below this, a scale times kRebias is finite, so that the product with fp16's number has the right value's bits.
inline constexpr float kScaleEnd = 0x1p119F;

// Scales of 32 columns.
MP_ISA_INLINE bool are_below_end(const float* scales) {
    const __m256 size = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    const __m256 end = _mm256_set1_ps(kScaleEnd);
    __m256 are = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
#pragma GCC unroll 4
    for (int i = 0; i < 32; i += 8) {
        const __m256 here = _mm256_and_ps(_mm256_loadu_ps(scales + i), size);
        are = _mm256_and_ps(are, _mm256_cmp_ps(here, end, _CMP_LT_OQ));
    }
    return _mm256_movemask_ps(are) == 0xff;
}

// 32 elements; scale: one for all, or, with kColumns, the first of theirs. False where something is not finite.
template <DType kFrom, DType kTo, bool kColumns>
MP_ISA_INLINE bool dequantize_32(const char* from, const float* scale, char* to) {
    const bool are_scales = kColumns ? are_below_end(scale) : __builtin_fabsf(*scale) < kScaleEnd;
    if (!are_scales || !are_finite<kFrom>(from)) {
        return false;
    }
    const __m256 rebias = _mm256_set1_ps(FiniteCodes<kFrom>::kRebias);
    const __m256 same = _mm256_mul_ps(_mm256_set1_ps(*scale), rebias);
#pragma GCC unroll 2
    for (int i = 0; i < 32; i += 16) {
        const __m256i halves = halves_of<kFrom>(from + i);
        const __m256 first = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
        const __m256 second = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
        const __m256 by = kColumns ? _mm256_mul_ps(_mm256_loadu_ps(scale + i), rebias) : same;
        const __m256 by_second =
            kColumns ? _mm256_mul_ps(_mm256_loadu_ps(scale + i + 8), rebias) : same;
        store_sixteen<kTo>(to + i * static_cast<int>(dtype_size(kTo)), _mm256_mul_ps(first, by),
                           _mm256_mul_ps(second, by_second));
    }
    return true;
}

template <DType kFrom, DType kTo>
MP_ISA_FUNCTION int dequantize_as(const char* from, int n, const float* scales, int64_t width,
                                  int64_t before, char* to) {
    constexpr auto kSize = static_cast<int>(dtype_size(kTo));
    int done = 0;
    if (width == 1) {
        while (done + 32 <= n &&
               dequantize_32<kFrom, kTo, true>(from + done, scales + done, to + done * kSize)) {
            done += 32;
        }
        return done;
    }
    // Whole vectors of one block; a block that ends within one ends this.
    int64_t left = width == 0 ? n : width - before;
    for (; done + 32 <= n && left >= 32; left -= 32) {
        if (!dequantize_32<kFrom, kTo, false>(from + done, scales, to + done * kSize)) {
            break;
        }
        done += 32;
        if (left == 32) {
            ++scales;
            left += width;
        }
    }
    return done;
}

template <DType kFrom>
MP_ISA_INLINE int dequantize_from(DType to, const char* from, int n, const float* scales,
                                  int64_t width, int64_t before, char* out) {
    switch (to) {
    case DType::fp32:
        return dequantize_as<kFrom, DType::fp32>(from, n, scales, width, before, out);
    case DType::bf16:
        return dequantize_as<kFrom, DType::bf16>(from, n, scales, width, before, out);
    case DType::fp16:
        return dequantize_as<kFrom, DType::fp16>(from, n, scales, width, before, out);
    default:
        return 0;
    }
}

// scales[0] belongs to the block of `width` columns whose first `before` columns are not there; width 0: to all.
MP_ISA_INLINE int dequantize_vector(DType from, DType to, const void* codes, int n,
                                    const float* scales, int64_t width, int64_t before,
                                    void* destination) {
    if (!is_fp8(from)) {
        return 0;
    }
    const char* at = static_cast<const char*>(codes);
    char* out = static_cast<char*>(destination);
    return from == DType::fp8_e4m3
               ? dequantize_from<DType::fp8_e4m3>(to, at, n, scales, width, before, out)
               : dequantize_from<DType::fp8_e5m2>(to, at, n, scales, width, before, out);
}

#else

MP_ISA_INLINE int dequantize_vector(DType, DType, const void*, int, const float*, int64_t, int64_t,
                                    void*) {
    return 0;
}

#endif

} // namespace mp::backends::host::MP_ISA_NAMESPACE
