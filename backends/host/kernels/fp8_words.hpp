// SPDX-License-Identifier: Apache-2.0
// 32 bf16 or fp16 codes to fp8 in lanes of 16 bits by AVX-512BW, without arithmetic in fp32, and bit-equal to
// numerics/fp8.hpp. Also times a power of two, which only moves the exponent. By AVX2 through fp32, but in registers.
#pragma once

#if defined(__AVX512BW__)
#include <immintrin.h>
#endif

#include "host/kernels/fp8_vector.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

#if defined(__AVX512BW__)

// Keeps a constant in a register. The compiler would make it anew from an immediate, in two instructions, wherever it
// is used in an unrolled loop.
MP_ISA_INLINE __m512i held(__m512i x) {
    asm("" : "+v"(x));
    return x;
}
MP_ISA_INLINE __m512i held_words(int x) { return held(_mm512_set1_epi16(static_cast<short>(x))); }

// The constants of one conversion; make one before the loop.
template <DType kFrom, DType kFp8> class EncodeWords {
    static_assert(kFrom == DType::bf16 || kFrom == DType::fp16);
    static constexpr int kMantissa = kFrom == DType::bf16 ? 7 : 10;
    static constexpr int kCodeMantissa = kFp8 == DType::fp8_e4m3 ? 3 : 2;
    // Where the exponent begins once the sign is shifted out.
    static constexpr int kField = kMantissa + 1;
    // The exponent field, in the source's format, of half the smallest subnormal code. What is smaller becomes a
    // code of 0, as a tie there does.
    static constexpr int kBase = (kFrom == DType::bf16 ? 127 : 15) +
                                 (kFp8 == DType::fp8_e4m3 ? -6 : -14) - kCodeMantissa - 1;
    // fp16 has E5M2's exponents itself.
    static constexpr bool kSameExponents = kBase < 0;
    // Codes with so many bits of fraction below them are rounded to nearest even at the end.
    static constexpr int kFraction = 9;

  public:
    static constexpr int kUnscaled =
        kSameExponents ? 0 : kBase << kField; // the base for a factor of 1

    explicit MP_ISA_INLINE EncodeWords(bool saturate) : limit_(held_words(limit(saturate))) {}

    // The code of |x| for x that are no NaN. base: kBase, less the exponent of the factor, in the exponent's place.
    MP_ISA_INLINE __m512i magnitude_of(__m512i x, __m512i base) const {
        const __m512i above = _mm512_subs_epu16(_mm512_add_epi16(x, x), base);
        const __m512i kept = _mm512_min_epu16(above, limit_);
        const __m512i fixed = kSameExponents ? kept : fixed_point(kept);
        const __mmask32 is_odd = _mm512_test_epi16_mask(fixed, unit_);
        const __m512i bumped = _mm512_add_epi16(fixed, below_half_);
        return _mm512_srli_epi16(_mm512_mask_add_epi16(bumped, is_odd, bumped, one_), kFraction);
    }

    // code | (x >> 8 & 0x80)
    MP_ISA_INLINE __m512i with_sign(__m512i code, __m512i x) const {
        return _mm512_ternarylogic_epi32(code, _mm512_srli_epi16(x, 8), sign_, 0xF8);
    }

    static MP_ISA_INLINE __mmask32 nan_lanes(__m512i x) {
        return _mm512_cmpgt_epu16_mask(_mm512_add_epi16(x, x),
                                       held_words(pattern(__builtin_huge_valf()) * 2));
    }
    static MP_ISA_INLINE __m512i nan_codes(__m512i x) {
        const __m512i payload =
            _mm512_and_si512(_mm512_srli_epi16(x, kMantissa - 2), _mm512_set1_epi16(3));
        return kFp8 == DType::fp8_e4m3
                   ? _mm512_set1_epi16(numerics::kE4m3Nan)
                   : _mm512_or_si512(payload, _mm512_set1_epi16(numerics::kE5m2QuietNan));
    }

    // The base for x times a power of two; 0 where that way is closed: the factor is no power of two, or so large
    // that subnormal x have codes of their own.
    static MP_ISA_INLINE int base_for(float factor) {
        const uint32_t bits = numerics::bits_from_float(factor);
        const int field = kBase + 127 - static_cast<int>(bits >> 23);
        const bool is_power = (bits & 0x007fffffU) == 0 && bits != 0;
        return !kSameExponents && is_power && field > 0 ? field << kField : 0;
    }

  private:
    static constexpr uint16_t pattern(float x) {
        return kFrom == DType::bf16 ? static_cast<uint16_t>(numerics::bits_from_float(x) >> 16)
                                    : numerics::float_to_fp16(x);
    }
    // The largest magnitude, less the base. Not saturating it is the number whose pattern is the NaN of E4M3 or the
    // infinity of E5M2.
    static constexpr int limit(bool saturate) {
        const float e4m3 = saturate ? numerics::kE4m3Max : 480.0F;
        const float e5m2 = saturate ? numerics::kE5m2Max : 65536.0F;
        return pattern(kFp8 == DType::fp8_e4m3 ? e4m3 : e5m2) * 2 - kUnscaled;
    }

    // For a normal code it is the pattern with its exponent rebiased; below that the significand, shifted by the
    // exponent, of which fp16 has two bits too many for the smallest two binades. One bit stands in for these: where
    // it is set and they are not lost, the value is no tie either.
    MP_ISA_INLINE __m512i fixed_point(__m512i kept) const {
        constexpr int kUp = kFraction + kCodeMantissa - kField;
        const __m512i normal = _mm512_sub_epi16(_mm512_slli_epi16(kept, kUp), rebias_);
        const __mmask32 is_tiny = _mm512_cmplt_epu16_mask(kept, smallest_);
        const __m512i field = _mm512_srli_epi16(kept, kField);
        // (kept & mantissa) | its leading one
        const __m512i significand = _mm512_ternarylogic_epi32(kept, mantissa_, leading_, 0xEA);
        if constexpr (kFrom == DType::bf16) {
            return _mm512_mask_sllv_epi16(normal, is_tiny, significand, field);
        } else {
            const __m512i shift =
                _mm512_sub_epi16(_mm512_set1_epi16(kField - (kFraction - 1)), field);
            const __m512i lost = _mm512_and_si512(kept, _mm512_set1_epi16(6));
            const __m512i tiny = _mm512_or_si512(_mm512_srlv_epi16(significand, shift),
                                                 _mm512_min_epu16(lost, one_));
            return _mm512_mask_mov_epi16(normal, is_tiny, tiny);
        }
    }

    __m512i limit_;
    __m512i unit_ = held_words(1 << kFraction);
    __m512i below_half_ = held_words((1 << (kFraction - 1)) - 1);
    __m512i one_ = held_words(1);
    __m512i sign_ = held_words(0x80);
    __m512i rebias_ = held_words(kCodeMantissa << (kFraction + kCodeMantissa));
    __m512i smallest_ = held_words((kCodeMantissa + 1) << kField);
    __m512i mantissa_ = held_words((1 << kField) - 1);
    __m512i leading_ = held_words(1 << kField);
};

// How many elements it did.
template <DType kFrom, DType kFp8>
MP_ISA_INLINE int encode_words(const void* source, void* destination, int n, bool saturate) {
    using Encode = EncodeWords<kFrom, kFp8>;
    const char* from = static_cast<const char*>(source);
    char* to = static_cast<char*>(destination);
    const Encode encode(saturate);
    const __m512i base = held_words(Encode::kUnscaled);
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        const __m512i x = _mm512_loadu_si512(from + 2 * i);
        __m512i code = encode.magnitude_of(x, base);
        const __mmask32 is_nan = Encode::nan_lanes(x);
        if (__builtin_expect(is_nan != 0, 0)) {
            code = _mm512_mask_mov_epi16(code, is_nan, Encode::nan_codes(x));
        }
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                            _mm512_cvtepi16_epi8(encode.with_sign(code, x)));
    }
    return i;
}

#elif defined(__AVX2__)

template <DType kFrom, DType kFp8>
MP_ISA_INLINE int encode_words(const void* source, void* destination, int n, bool saturate) {
    return saturate ? encode_fp8_vector<kFp8, true, kFrom>(source, destination, n)
                    : encode_fp8_vector<kFp8, false, kFrom>(source, destination, n);
}

#else

template <DType kFrom, DType kFp8> MP_ISA_INLINE int encode_words(const void*, void*, int, bool) {
    return 0;
}

#endif

} // namespace mp::backends::host::MP_ISA_NAMESPACE
