// SPDX-License-Identifier: Apache-2.0
// fp32 to fp8 by AVX-512 and AVX2, and E4M3 to bf16 by AVX-512, bit-equal to numerics/fp8.hpp on every input.
// They return how many elements they did; the rest, and other targets, take the plain loops.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "host/kernels/base.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

#if defined(__AVX2__)

// 32 numbers from 0 to 255 as bytes, in the order that packing within 128 bits leaves; and in their own.
MP_ISA_INLINE __m256i pack_bytes(const __m256i (&words)[4]) {
    return _mm256_packus_epi16(_mm256_packs_epi32(words[0], words[1]),
                               _mm256_packs_epi32(words[2], words[3]));
}
MP_ISA_INLINE void store_packed(__m256i bytes, void* to) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(static_cast<__m256i*>(to), _mm256_permutevar8x32_epi32(bytes, order));
}

// Codes of a byte, 32 at a time: codes_of(x, doubt) gives 8 as words and a bit for each that it is not sure of, settle(i, lanes)
// finds those. Returns how many it did.
template <class CodesOf, class Settle>
MP_ISA_INLINE int encode_by_32(const float* values, uint8_t* codes, int n, const CodesOf& codes_of,
                               const Settle& settle) {
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i words[4];
        uint32_t doubtful = 0;
        for (int j = 0; j < 4; ++j) {
            int doubt = 0;
            words[j] = codes_of(_mm256_loadu_ps(values + i + 8 * j), doubt);
            doubtful |= static_cast<uint32_t>(doubt) << (8 * j);
        }
        store_packed(pack_bytes(words), codes + i);
        if (__builtin_expect(static_cast<int>(doubtful != 0), 0) != 0) {
            settle(i, doubtful);
        }
    }
    return i;
}

#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

// Round to nearest even, into a format with kMantissaBits and smallest normal 2^kMinExponent.
// Adding 2^(e + 23 - kMantissaBits), where 2^e is the value's binade and at least the smallest
// normal one, rounds it to a multiple q of its last place and leaves q in the low bits of the sum;
// the code is q plus the binade's number. The rounding mode is part of the instruction, so the
// caller's setting does not matter, and neither do the modes for subnormals: fp32 ones are 0 in
// every format here.
template <int kMantissaBits, int kMinExponent> struct EncodeVector {
    static constexpr int kDrop = 23 - kMantissaBits;
    static constexpr int kSmallest = (127 + kMinExponent) << 23;

    // `limit`: the largest magnitude, which the caller's overflow rule gives; `nan`: code of a NaN
    // without sign, as bits to set and bits of the input's payload to keep.
    static MP_ISA_INLINE __m128i encode(__m512 x, float limit, int nan, int payload) {
        // The smaller magnitude, without sign; the limit where x is a NaN.
        const __m512 magnitude = _mm512_range_ps(x, _mm512_set1_ps(limit), 0xA);
        const __m512i binade =
            _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(magnitude),
                                              _mm512_set1_epi32(static_cast<int>(0x7f800000U))),
                             _mm512_set1_epi32(kSmallest));
        const __m512i magic = _mm512_add_epi32(binade, _mm512_set1_epi32(kDrop << 23));
        const __m512 sum = _mm512_add_round_ps(magnitude, _mm512_castsi512_ps(magic),
                                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        // Only the lowest 8 bits count, and those of the magic number are 0.
        const __m512i q = _mm512_sub_epi32(_mm512_castps_si512(sum), binade);
        const __m512i number = _mm512_srli_epi32(binade, kDrop);
        __m128i code = _mm512_cvtepi32_epi8(_mm512_add_epi32(q, number));
        code = _mm_sub_epi8(code, _mm_set1_epi8(static_cast<char>(kSmallest >> kDrop)));
        const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
        if (__builtin_expect(is_nan != 0, 0)) {
            const __m512i kept = _mm512_and_si512(_mm512_srli_epi32(_mm512_castps_si512(x), kDrop),
                                                  _mm512_set1_epi32(payload));
            const __m128i nans =
                _mm512_cvtepi32_epi8(_mm512_or_si512(kept, _mm512_set1_epi32(nan)));
            code = _mm_mask_mov_epi8(code, is_nan, nans);
        }
        const __mmask16 is_negative = _mm512_movepi32_mask(_mm512_castps_si512(x));
        const __m128i sign = _mm_set1_epi8(static_cast<char>(0x80));
        return _mm_or_si128(code, _mm_maskz_mov_epi8(is_negative, sign));
    }
};

template <DType kFp8, bool kSaturate> MP_ISA_INLINE __m128i encode_fp8(__m512 x) {
    if constexpr (kFp8 == DType::fp8_e4m3) {
        // 480 would be the value after 448; its pattern is the NaN.
        return EncodeVector<3, -6>::encode(x, kSaturate ? numerics::kE4m3Max : 480.0F,
                                           numerics::kE4m3Nan, 0);
    } else {
        // 2^16 would be the value after 57344; its pattern is infinity.
        return EncodeVector<2, -14>::encode(x, kSaturate ? numerics::kE5m2Max : 65536.0F,
                                            numerics::kE5m2QuietNan, 3);
    }
}

template <DType kFp8, bool kSaturate>
MP_ISA_INLINE int encode_fp8_vector(const void* source, void* destination, int n) {
    const char* from = static_cast<const char*>(source);
    char* to = static_cast<char*>(destination);
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m512 x = _mm512_loadu_ps(from + 4 * i);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), encode_fp8<kFp8, kSaturate>(x));
    }
    return i;
}

// By a table of the 128 magnitudes, which fit bf16 exactly.
MP_ISA_INLINE int e4m3_to_bf16_vector(const void* source, void* destination, int n) {
    alignas(64) uint16_t table[128];
    for (int code = 0; code < 128; ++code) {
        const float x = numerics::e4m3_to_float(static_cast<uint8_t>(code));
        table[code] = static_cast<uint16_t>(numerics::bits_from_float(x) >> 16);
    }
    const __m512i t0 = _mm512_load_si512(table);
    const __m512i t1 = _mm512_load_si512(table + 32);
    const __m512i t2 = _mm512_load_si512(table + 64);
    const __m512i t3 = _mm512_load_si512(table + 96);
    const __m512i sign_bit = _mm512_set1_epi16(static_cast<short>(0x8000));
    const char* from = static_cast<const char*>(source);
    char* to = static_cast<char*>(destination);
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        const __m512i codes =
            _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
        const __mmask32 is_upper = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(0x40));
        const __m512i lower = _mm512_permutex2var_epi16(t0, codes, t1);
        const __m512i upper = _mm512_permutex2var_epi16(t2, codes, t3);
        const __m512i magnitude = _mm512_mask_mov_epi16(lower, is_upper, upper);
        // magnitude | (codes << 8 & sign_bit)
        const __m512i shifted = _mm512_slli_epi16(codes, 8);
        _mm512_storeu_si512(to + 2 * i,
                            _mm512_ternarylogic_epi32(magnitude, shifted, sign_bit, 0xF8));
    }
    return i;
}

#elif defined(__AVX2__)

// 8 numbers of fp32, bf16 or fp16.
template <DType kFrom> MP_ISA_INLINE __m256 load_eight_of(const char* at) {
    if constexpr (kFrom == DType::fp32) {
        return _mm256_loadu_ps(reinterpret_cast<const float*>(at));
    } else {
        const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
        if constexpr (kFrom == DType::bf16) {
            return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(codes), 16));
        } else {
            return _mm256_cvtph_ps(codes);
        }
    }
}

// As EncodeVector above, with fewer constants: the two that a code is off by are in the number that is added to round, whose
// low bits stay even, so that ties still go to even. The caller's rounding mode is the default one
// (process/float_environment.hpp).
template <DType kTo> class EncodeEights {
    static constexpr bool kIsE2m1 = kTo == DType::fp4_e2m1;
    static constexpr int kDrop = 23 - (kIsE2m1 ? 1 : (kTo == DType::fp8_e5m2 ? 2 : 3));
    static constexpr int kMinExponent = kIsE2m1 ? 0 : (kTo == DType::fp8_e5m2 ? -14 : -6);
    static constexpr int kSmallest = (127 + kMinExponent) << 23;
    static constexpr int kOffset = (0x100 - ((kSmallest >> kDrop) & 0xff)) & 0xff;
    static_assert(kOffset % 2 == 0);

    __m256 limit_;
    __m256i exponent_ = _mm256_set1_epi32(0x7f800000);
    __m256i smallest_ = _mm256_set1_epi32(kSmallest);
    __m256i magic_ = _mm256_set1_epi32((kDrop << 23) + kOffset);
    __m256i byte_ = _mm256_set1_epi32(0xff);
    __m256i sign_ = _mm256_set1_epi8(static_cast<char>(0x80));

  public:
    explicit MP_ISA_INLINE EncodeEights(float limit) : limit_(_mm256_set1_ps(limit)) {}

    // The code of `size`, which has no sign, in the low 8 bits of each lane; of a NaN the limit's.
    MP_ISA_INLINE __m256i magnitude_of(__m256 size) const {
        const __m256 magnitude = _mm256_min_ps(size, limit_); // the second where the first is a NaN
        const __m256i binade = _mm256_max_epi32(
            _mm256_and_si256(_mm256_castps_si256(magnitude), exponent_), smallest_);
        const __m256 magic = _mm256_castsi256_ps(_mm256_add_epi32(binade, magic_));
        return _mm256_add_epi32(_mm256_castps_si256(_mm256_add_ps(magnitude, magic)),
                                _mm256_srli_epi32(binade, kDrop));
    }

    // As pack_bytes(), with the signs of x, which packing with saturation keeps.
    MP_ISA_INLINE __m256i join(const __m256i (&codes)[4], const __m256 (&x)[4]) const {
        __m256i words[4];
        __m256i signs[4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
            words[j] = _mm256_and_si256(codes[j], byte_);
            signs[j] = _mm256_castps_si256(x[j]);
        }
        const __m256i sign =
            _mm256_and_si256(_mm256_packs_epi16(_mm256_packs_epi32(signs[0], signs[1]),
                                                _mm256_packs_epi32(signs[2], signs[3])),
                             sign_);
        return _mm256_or_si256(pack_bytes(words), kIsE2m1 ? _mm256_srli_epi16(sign, 4) : sign);
    }
};

// From fp32, bf16 or fp16. How many it did: up to a NaN, which the plain loop does.
template <DType kFp8, bool kSaturate, DType kFrom = DType::fp32>
MP_ISA_INLINE int encode_fp8_vector(const void* source, void* destination, int n) {
    constexpr auto kSize = static_cast<int>(dtype_size(kFrom));
    constexpr float kBeyond = kFp8 == DType::fp8_e4m3 ? 480.0F : 65536.0F;
    const EncodeEights<kFp8> encode(kSaturate ? max_finite(kFp8) : kBeyond);
    const __m256 all = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    const char* from = static_cast<const char*>(source);
    char* to = static_cast<char*>(destination);
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256 x[4];
        __m256i codes[4];
        __m256 is_nan = _mm256_setzero_ps();
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
            x[j] = load_eight_of<kFrom>(from + (i + 8 * j) * kSize);
            is_nan = _mm256_or_ps(is_nan, _mm256_cmp_ps(x[j], x[j], _CMP_UNORD_Q));
            codes[j] = encode.magnitude_of(_mm256_and_ps(x[j], all));
        }
        if (__builtin_expect(_mm256_movemask_ps(is_nan), 0) != 0) {
            break;
        }
        store_packed(encode.join(codes, x), to + i);
    }
    return i;
}
MP_ISA_INLINE int e4m3_to_bf16_vector(const void*, void*, int) { return 0; }

#else

template <DType kFp8, bool kSaturate> MP_ISA_INLINE int encode_fp8_vector(const void*, void*, int) {
    return 0;
}
MP_ISA_INLINE int e4m3_to_bf16_vector(const void*, void*, int) { return 0; }

#endif

} // namespace mp::backends::host::MP_ISA_NAMESPACE
