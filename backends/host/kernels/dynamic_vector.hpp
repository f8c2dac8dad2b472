// SPDX-License-Identifier: Apache-2.0
// Codes of the dynamic maps both ways by AVX-512, and to 8-bit codes by AVX2, equal to numerics::BlockCodec on every
// input. They return how many elements they did; the rest, and other targets, take the plain loops.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "host/kernels/fp8_vector.hpp"
#include "host/kernels/lookup_vector.hpp"
#include "numerics/dynamic_pieces.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// Elements whose code an approximation does not tell for certain.
template <Coding kCoding, bool kSigned>
MP_ISA_FUNCTION void settle_codes(const float* values, float scale, uint8_t* codes,
                                  uint64_t doubtful) {
    for (; doubtful != 0; doubtful &= doubtful - 1) {
        const int i = __builtin_ctzll(doubtful);
        codes[i] =
            static_cast<uint8_t>(numerics::BlockCodec<kCoding>::code(kSigned, values[i], scale));
    }
}

#if defined(MP_ISA_AVX512)

// From the code of zero on.
inline constexpr FloatHalves<128> kSigned8Halves =
    make_halves<128>([](int i) { return numerics::kSigned8Map.value[127 + i]; });
inline constexpr FloatHalves<256> kUnsigned8Halves =
    make_halves<256>([](int i) { return numerics::kUnsigned8Map.value[i]; });

template <bool kSigned> struct Dynamic8Vector {
    // Values of 32 codes, each a word; of the signed map only the distance from zero is looked up.
    static MP_ISA_INLINE void halves(__m512i codes, __m512i& high, __m512i& low) {
        if constexpr (kSigned) {
            const __m512i zero_code = _mm512_set1_epi16(127);
            const __m512i index = _mm512_abs_epi16(_mm512_sub_epi16(codes, zero_code));
            const __mmask32 bit6 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64));
            const __mmask32 is_one = _mm512_test_epi16_mask(index, _mm512_set1_epi16(128));
            const __mmask32 is_negative = _mm512_cmplt_epi16_mask(codes, zero_code);
            high = lookup128(kSigned8Halves.high, index, bit6);
            low = lookup128(kSigned8Halves.low, index, bit6);
            high = _mm512_mask_mov_epi16(high, is_one, _mm512_set1_epi16(0x3f80));
            high = _mm512_mask_add_epi16(high, is_negative, high,
                                         _mm512_set1_epi16(static_cast<short>(0x8000)));
        } else {
            const __mmask32 bit6 = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(64));
            const __mmask32 bit7 = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(128));
            high = lookup256(kUnsigned8Halves.high, codes, bit6, bit7);
            low = lookup256(kUnsigned8Halves.low, codes, bit6, bit7);
        }
    }

    static MP_ISA_INLINE int decode(const uint8_t* codes, float scale, float* values, int n) {
        const __m512 factor = _mm512_set1_ps(scale);
        int i = 0;
        for (; i + 32 <= n; i += 32) {
            __m512i high;
            __m512i low;
            halves(load_codes(codes + i), high, low);
            multiply_halves(high, low, factor, values + i);
        }
        return i;
    }

    struct Lines {
        __m512i to_next[2];
        __m512 slope[2];
        __m512 offset[2];
        __m512 last[2];
    };

    static MP_ISA_INLINE Lines load_lines() {
        const numerics::CodePieces& p =
            kSigned ? numerics::kSigned8Pieces : numerics::kUnsigned8Pieces;
        return {{_mm512_loadu_si512(p.to_next), _mm512_loadu_si512(p.to_next + 16)},
                {_mm512_loadu_ps(p.slope), _mm512_loadu_ps(p.slope + 16)},
                {_mm512_loadu_ps(p.offset), _mm512_loadu_ps(p.offset + 16)},
                {_mm512_loadu_ps(p.last), _mm512_loadu_ps(p.last + 16)}};
    }

    // The codes of 16 numbers, and which of them are in doubt. Finite numbers of a finite block only.
    static MP_ISA_INLINE __m128i encode(const Lines& t, __m512 x, __m512 inverse,
                                        __mmask16& doubt) {
        using P = numerics::CodePieces;
        __m512 magnitude = _mm512_mul_ps(x, inverse);
        if constexpr (kSigned) {
            magnitude = _mm512_abs_ps(magnitude);
        }
        magnitude = _mm512_max_ps(magnitude, _mm512_set1_ps(P::kLeast));
        const __m512i bits = _mm512_castps_si512(magnitude);
        const __m512i carry =
            _mm512_permutex2var_epi32(t.to_next[0], _mm512_srli_epi32(bits, 23), t.to_next[1]);
        const __m512i index = _mm512_srli_epi32(_mm512_add_epi32(bits, carry), 23);
        const __m512 slope = _mm512_permutex2var_ps(t.slope[0], index, t.slope[1]);
        const __m512 offset = _mm512_permutex2var_ps(t.offset[0], index, t.offset[1]);
        const __m512 last = _mm512_permutex2var_ps(t.last[0], index, t.last[1]);
        const __m512 line = _mm512_fmadd_ps(slope, magnitude, offset);
        const __m512 fraction = _mm512_reduce_ps(line, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
        doubt = _mm512_cmp_ps_mask(fraction, _mm512_set1_ps(2 * P::kDoubt), _CMP_LT_OQ);
        const __m512i code = _mm512_cvttps_epi32(_mm512_min_ps(line, last));
        const __m128i distance = _mm512_cvtepi32_epi8(code);
        if constexpr (kSigned) {
            const __mmask16 is_negative = _mm512_movepi32_mask(_mm512_castps_si512(x));
            const __m128i zero_code = _mm_set1_epi8(127);
            // There is no -1.
            return _mm_mask_subs_epu8(_mm_add_epi8(zero_code, distance), is_negative, zero_code,
                                      distance);
        } else {
            const __mmask16 is_positive = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GT_OQ);
            return _mm_mask_max_epu8(distance, is_positive, distance, _mm_set1_epi8(1));
        }
    }

    static MP_ISA_INLINE int encode(const float* values, float scale, uint8_t* codes, int n) {
        if (!(scale <= 0x1p125F)) { // NaN, infinity, and what has no normal inverse
            return 0;
        }
        const Lines lines = load_lines();
        const __m512 inverse = _mm512_set1_ps(1.0F / scale);
        int i = 0;
        for (; i + 64 <= n; i += 64) {
            __mmask16 doubt[4];
            for (int j = 0; j < 4; ++j) {
                const __m512 x = _mm512_loadu_ps(values + i + 16 * j);
                _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i + 16 * j),
                                 encode(lines, x, inverse, doubt[j]));
            }
            const uint64_t lanes =
                static_cast<uint64_t>(doubt[0]) | static_cast<uint64_t>(doubt[1]) << 16 |
                static_cast<uint64_t>(doubt[2]) << 32 | static_cast<uint64_t>(doubt[3]) << 48;
            if (__builtin_expect(lanes != 0, 0)) {
                settle_codes<Coding::dynamic8, kSigned>(values + i, scale, codes + i, lanes);
            }
        }
        return i;
    }
};

// 16 values fit one register.
template <bool kSigned> struct Dynamic4Vector {
    static constexpr const numerics::DynamicMap<16>& map() {
        return kSigned ? numerics::kSigned4Map : numerics::kLinear4Map;
    }

    static MP_ISA_INLINE int decode(const uint8_t* codes, float scale, float* values, int n) {
        const __m512 table = _mm512_loadu_ps(map().value);
        const __m512 factor = _mm512_set1_ps(scale);
        int i = 0;
        for (; i + 16 <= n; i += 16) {
            const __m512i pairs = _mm512_cvtepu8_epi64(
                _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + i / 2)));
            // The upper nibble is the even element's; of an index 4 bits are read.
            const __m512i index =
                _mm512_or_si512(_mm512_srli_epi64(pairs, 4), _mm512_slli_epi64(pairs, 32));
            _mm512_storeu_ps(values + i,
                             _mm512_mul_ps(_mm512_permutexvar_ps(index, table), factor));
        }
        return i;
    }

    // A binary search; a NaN compares as less and ends at 0.
    static MP_ISA_INLINE int encode(const float* values, float scale, uint8_t* codes, int n) {
        const __m512 thresholds = _mm512_loadu_ps(map().threshold);
        const __m512 divisor = _mm512_set1_ps(scale);
        int i = 0;
        for (; i + 16 <= n; i += 16) {
            const __m512 x = _mm512_div_ps(_mm512_loadu_ps(values + i), divisor);
            __m512i code = _mm512_setzero_si512();
#pragma GCC unroll 4
            for (int step = 8; step > 0; step /= 2) {
                const __m512i next = _mm512_or_si512(code, _mm512_set1_epi32(step));
                const __mmask16 is_reached =
                    _mm512_cmp_ps_mask(x, _mm512_permutexvar_ps(next, thresholds), _CMP_GE_OQ);
                code = _mm512_mask_mov_epi32(code, is_reached, next);
            }
            const __m512i pairs =
                _mm512_or_si512(_mm512_slli_epi64(code, 4), _mm512_srli_epi64(code, 32));
            _mm_storel_epi64(reinterpret_cast<__m128i*>(codes + i / 2),
                             _mm512_cvtepi64_epi8(pairs));
        }
        return i;
    }
};

#else

#if defined(__AVX2__)

template <bool kSigned> struct Dynamic8Vector {
    struct Lines {
        __m256 begin; // of lines 0 to 7
        __m256 slope;
        __m256 offset;
        __m256 last;
    };

    static MP_ISA_INLINE const numerics::CodeLines& lines() {
        return kSigned ? numerics::kSigned8Lines : numerics::kUnsigned8Lines;
    }

    static MP_ISA_INLINE Lines load_lines() {
        const float* e = lines().end;
        return {_mm256_setr_ps(0.0F, e[0], e[1], e[2], e[3], e[4], e[5], e[6]),
                _mm256_loadu_ps(lines().slope), _mm256_loadu_ps(lines().offset),
                _mm256_loadu_ps(lines().last)};
    }

    // Distances from the code of zero, and which of them are in doubt.
    static MP_ISA_INLINE __m256i distances(const Lines& t, __m256 magnitude, int& doubt) {
        __m256i index = _mm256_setzero_si256();
#pragma GCC unroll 3
        for (int step = 4; step > 0; step /= 2) {
            const __m256i next = _mm256_or_si256(index, _mm256_set1_epi32(step));
            const __m256 begin = _mm256_permutevar8x32_ps(t.begin, next);
            const __m256 reached = _mm256_cmp_ps(magnitude, begin, _CMP_GE_OQ);
            index = _mm256_blendv_epi8(index, next, _mm256_castps_si256(reached));
        }
        const __m256 is_one = _mm256_cmp_ps(magnitude, _mm256_set1_ps(lines().end[7]), _CMP_GE_OQ);
        const auto choose = [&](__m256 of_line, float of_one) {
            return _mm256_blendv_ps(_mm256_permutevar8x32_ps(of_line, index),
                                    _mm256_set1_ps(of_one), is_one);
        };
        const __m256 line = _mm256_fmadd_ps(choose(t.slope, lines().slope[8]), magnitude,
                                            choose(t.offset, lines().offset[8]));
        const __m256 fraction = _mm256_sub_ps(line, _mm256_floor_ps(line));
        doubt = _mm256_movemask_ps(
            _mm256_cmp_ps(fraction, _mm256_set1_ps(2 * numerics::CodePieces::kDoubt), _CMP_LT_OQ));
        return _mm256_cvttps_epi32(_mm256_min_ps(line, choose(t.last, lines().last[8])));
    }

    // The codes of 8 finite numbers as words.
    static MP_ISA_INLINE __m256i codes_of(const Lines& t, __m256 x, __m256 inverse, int& doubt) {
        const __m256 sign = _mm256_set1_ps(-0.0F);
        const __m256 scaled = _mm256_mul_ps(x, inverse);
        if constexpr (kSigned) {
            const __m256i distance = distances(t, _mm256_andnot_ps(sign, scaled), doubt);
            const __m256i is_negative = _mm256_srai_epi32(_mm256_castps_si256(x), 31);
            const __m256i moved =
                _mm256_sub_epi32(_mm256_xor_si256(distance, is_negative), is_negative);
            // There is no -1.
            return _mm256_max_epi32(_mm256_add_epi32(_mm256_set1_epi32(127), moved),
                                    _mm256_setzero_si256());
        } else {
            const __m256i distance =
                distances(t, _mm256_max_ps(scaled, _mm256_setzero_ps()), doubt);
            const __m256 is_positive = _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_GT_OQ);
            const __m256i least =
                _mm256_and_si256(_mm256_castps_si256(is_positive), _mm256_set1_epi32(1));
            return _mm256_max_epi32(distance, least);
        }
    }

    static MP_ISA_INLINE int decode(const uint8_t*, float, float*, int) { return 0; }

    static MP_ISA_INLINE int encode(const float* values, float scale, uint8_t* codes, int n) {
        if (!(scale <= 0x1p125F)) { // NaN, infinity, and what has no normal inverse
            return 0;
        }
        const Lines t = load_lines();
        const __m256 inverse = _mm256_set1_ps(1.0F / scale);
        return encode_by_32(
            values, codes, n,
            [&](__m256 x, int& doubt) MP_INLINED { return codes_of(t, x, inverse, doubt); },
            [&](int i, uint32_t lanes) MP_INLINED {
                settle_codes<Coding::dynamic8, kSigned>(values + i, scale, codes + i, lanes);
            });
    }
};

#else

template <bool kSigned> struct Dynamic8Vector {
    static MP_ISA_INLINE int decode(const uint8_t*, float, float*, int) { return 0; }
    static MP_ISA_INLINE int encode(const float*, float, uint8_t*, int) { return 0; }
};

#endif

template <bool kSigned> struct Dynamic4Vector {
    static MP_ISA_INLINE int decode(const uint8_t*, float, float*, int) { return 0; }
    static MP_ISA_INLINE int encode(const float*, float, uint8_t*, int) { return 0; }
};

#endif

} // namespace mp::backends::host::MP_ISA_NAMESPACE
