// SPDX-License-Identifier: Apache-2.0
// Companded codes (numerics/block_state.hpp) both ways by AVX-512, and to codes by AVX2, equal to numerics::BlockCodec on every
// input. Divisions are what the plain loops are bound by, so codes come from approximations, and where one lies within kDoubt of
// the next code they are found exactly; a code's value is looked up. They return how many elements they did; the rest, and
// other targets, take the plain loops.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "host/kernels/dynamic_vector.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

#if defined(__AVX2__)

// Of a code's width. What is approximated is at most 16 ulps off, which is 2^-12 of a code's width at 255.
inline constexpr float kCompandedDoubt = 0x1p-11F;
inline constexpr float kCompandedHalf =
    0.5F + kCompandedDoubt; // so that doubt is a fraction below 2 * kCompandedDoubt

// Blocks whose elements are finite, and with whose scale nothing that decides about a code leaves the normal numbers.
template <bool kSigned> MP_ISA_INLINE bool can_approximate(float scale) {
    return kSigned ? scale <= 0x1p125F : scale >= 0x1p-50F && scale <= 0x1p65F;
}

#endif

#if defined(MP_ISA_AVX512)

inline constexpr FloatHalves<128> kCompandedHalves = make_halves<128>([](int i) {
    const float y = static_cast<float>(i) / 127.0F;
    return y / (2.0F - y);
});
inline constexpr FloatHalves<256> kRootHalves =
    make_halves<256>([](int i) { return static_cast<float>(i) / 255.0F; });
// Of the code -128, which nothing is encoded as.
inline constexpr uint32_t kLowestCompanded =
    numerics::bits_from_float((128.0F / 127.0F) / (2.0F - 128.0F / 127.0F));

template <bool kSigned> struct CompandedVector {
    static MP_ISA_INLINE void decode_32(const uint8_t* codes, __m512 scale, float* values) {
        const __m512i words = load_codes(codes);
        const __mmask32 bit7 = _mm512_test_epi16_mask(words, _mm512_set1_epi16(128));
        __m512i high;
        __m512i low;
        if constexpr (kSigned) { // bit 7: two's complement
            const __m512i index = _mm512_mask_sub_epi16(words, bit7, _mm512_set1_epi16(256), words);
            const __mmask32 bit6 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64));
            const __mmask32 is_lowest = _mm512_test_epi16_mask(index, _mm512_set1_epi16(128));
            high = _mm512_mask_mov_epi16(
                lookup128(kCompandedHalves.high, index, bit6), is_lowest,
                _mm512_set1_epi16(static_cast<short>(kLowestCompanded >> 16)));
            low = _mm512_mask_mov_epi16(
                lookup128(kCompandedHalves.low, index, bit6), is_lowest,
                _mm512_set1_epi16(static_cast<short>(kLowestCompanded & 0xffffU)));
            high = _mm512_mask_add_epi16(high, bit7, high,
                                         _mm512_set1_epi16(static_cast<short>(0x8000)));
            multiply_halves(high, low, scale, values);
        } else {
            const __mmask32 bit6 = _mm512_test_epi16_mask(words, _mm512_set1_epi16(64));
            high = lookup256(kRootHalves.high, words, bit6, bit7);
            low = lookup256(kRootHalves.low, words, bit6, bit7);
            const __m512 first =
                _mm512_mul_ps(_mm512_castsi512_ps(_mm512_unpacklo_epi16(low, high)), scale);
            const __m512 second =
                _mm512_mul_ps(_mm512_castsi512_ps(_mm512_unpackhi_epi16(low, high)), scale);
            _mm512_storeu_ps(values, _mm512_mul_ps(first, first));
            _mm512_storeu_ps(values + 16, _mm512_mul_ps(second, second));
        }
    }

    static MP_ISA_INLINE int decode(const uint8_t* codes, float scale, float* values, int n) {
        int i = 0;
        for (; i + 32 <= n; i += 32) {
            decode_32(codes + i, _mm512_set1_ps(scale), values + i);
        }
        return i;
    }

    // 127 y or 255 times the root, and a half.
    static MP_ISA_INLINE __m512 line(__m512 x, __m512 inverse) {
        const __m512 half = _mm512_set1_ps(kCompandedHalf);
        if constexpr (kSigned) {
            const __m512 normal = _mm512_mul_ps(x, inverse);
            const __m512 divisor = _mm512_add_ps(_mm512_set1_ps(1.0F), _mm512_abs_ps(normal));
            const __m512 near = _mm512_rcp14_ps(divisor);
            const __m512 reciprocal =
                _mm512_mul_ps(near, _mm512_fnmadd_ps(divisor, near, _mm512_set1_ps(2.0F)));
            return _mm512_fmadd_ps(_mm512_mul_ps(normal, _mm512_set1_ps(254.0F)), reciprocal, half);
        } else {
            const __m512 square = _mm512_max_ps(x, _mm512_set1_ps(0x1p-126F));
            const __m512 near = _mm512_rsqrt14_ps(square);
            const __m512 root = _mm512_mul_ps(square, near);
            const __m512 error = _mm512_fnmadd_ps(root, _mm512_mul_ps(near, _mm512_set1_ps(0.5F)),
                                                  _mm512_set1_ps(0.5F));
            return _mm512_fmadd_ps(_mm512_fmadd_ps(root, error, root), inverse, half);
        }
    }

    static MP_ISA_INLINE __m128i encode(__m512 x, __m512 inverse, __mmask16& doubt) {
        const __m512 at = line(x, inverse);
        const __m512 floor = _mm512_roundscale_ps(at, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
        doubt = _mm512_cmp_ps_mask(_mm512_sub_ps(at, floor), _mm512_set1_ps(2 * kCompandedDoubt),
                                   _CMP_LT_OQ);
        const __m128i codes = _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(floor));
        if constexpr (kSigned) {
            return codes;
        } else {
            const __mmask16 is_positive = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GT_OQ);
            return _mm_mask_max_epu8(codes, is_positive, codes, _mm_set1_epi8(1));
        }
    }

    static MP_ISA_INLINE int encode(const float* values, float scale, uint8_t* codes, int n) {
        if (!can_approximate<kSigned>(scale)) {
            return 0;
        }
        const __m512 inverse = _mm512_set1_ps((kSigned ? 1.0F : 255.0F) / scale);
        int i = 0;
        for (; i + 32 <= n; i += 32) {
            __mmask16 doubt[2];
            for (int j = 0; j < 2; ++j) {
                const __m512 x = _mm512_loadu_ps(values + i + 16 * j);
                _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i + 16 * j),
                                 encode(x, inverse, doubt[j]));
            }
            const uint32_t lanes = static_cast<uint32_t>(doubt[0]) | static_cast<uint32_t>(doubt[1])
                                                                         << 16;
            if (__builtin_expect(static_cast<int>(lanes != 0), 0) != 0) {
                settle_codes<Coding::companded8, kSigned>(values + i, scale, codes + i, lanes);
            }
        }
        return i;
    }
};

#elif defined(__AVX2__)

template <bool kSigned> struct CompandedVector {
    static MP_ISA_INLINE int decode(const uint8_t*, float, float*, int) { return 0; }

    // 127 y or 255 times the root, and a half.
    static MP_ISA_INLINE __m256 line(__m256 x, __m256 inverse) {
        const __m256 half = _mm256_set1_ps(kCompandedHalf);
        if constexpr (kSigned) {
            const __m256 normal = _mm256_mul_ps(x, inverse);
            const __m256 divisor = _mm256_add_ps(_mm256_set1_ps(1.0F),
                                                 _mm256_andnot_ps(_mm256_set1_ps(-0.0F), normal));
            const __m256 near = _mm256_rcp_ps(divisor);
            const __m256 reciprocal =
                _mm256_mul_ps(near, _mm256_fnmadd_ps(divisor, near, _mm256_set1_ps(2.0F)));
            return _mm256_fmadd_ps(_mm256_mul_ps(normal, _mm256_set1_ps(254.0F)), reciprocal, half);
        } else {
            const __m256 square = _mm256_max_ps(x, _mm256_set1_ps(0x1p-126F));
            const __m256 near = _mm256_rsqrt_ps(square);
            const __m256 root = _mm256_mul_ps(square, near);
            const __m256 error = _mm256_fnmadd_ps(root, _mm256_mul_ps(near, _mm256_set1_ps(0.5F)),
                                                  _mm256_set1_ps(0.5F));
            return _mm256_fmadd_ps(_mm256_fmadd_ps(root, error, root), inverse, half);
        }
    }

    // The codes of 8 numbers as words of 32 bits, of which the lower 8 count.
    static MP_ISA_INLINE __m256i encode(__m256 x, __m256 inverse, int& doubt) {
        const __m256 at = line(x, inverse);
        const __m256 floor = _mm256_floor_ps(at);
        doubt = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_sub_ps(at, floor),
                                                 _mm256_set1_ps(2 * kCompandedDoubt), _CMP_LT_OQ));
        const __m256i codes = _mm256_cvttps_epi32(floor);
        if constexpr (kSigned) {
            return _mm256_and_si256(codes, _mm256_set1_epi32(0xff));
        } else {
            const __m256 is_positive = _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_GT_OQ);
            const __m256i least =
                _mm256_and_si256(_mm256_castps_si256(is_positive), _mm256_set1_epi32(1));
            return _mm256_max_epi32(codes, least);
        }
    }

    static MP_ISA_INLINE int encode(const float* values, float scale, uint8_t* codes, int n) {
        if (!can_approximate<kSigned>(scale)) {
            return 0;
        }
        const __m256 inverse = _mm256_set1_ps((kSigned ? 1.0F : 255.0F) / scale);
        return encode_by_32(
            values, codes, n,
            [&](__m256 x, int& doubt) MP_INLINED { return encode(x, inverse, doubt); },
            [&](int i, uint32_t lanes) MP_INLINED {
                settle_codes<Coding::companded8, kSigned>(values + i, scale, codes + i, lanes);
            });
    }
};

#else

template <bool kSigned> struct CompandedVector {
    static MP_ISA_INLINE int decode(const uint8_t*, float, float*, int) { return 0; }
    static MP_ISA_INLINE int encode(const float*, float, uint8_t*, int) { return 0; }
};

#endif

} // namespace mp::backends::host::MP_ISA_NAMESPACE
