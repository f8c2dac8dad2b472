// SPDX-License-Identifier: Apache-2.0
// Finite fp32, fp16 and bf16 times a factor to fp8 and E2M1 by AVX-512, 32 at a time, with what is to be gathered, and
// bit-equal to numerics/quantize.hpp.
#pragma once

#include "host/kernels/wide_words.hpp"
#include "numerics/quantize.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

#if defined(MP_ISA_WIDE_WORDS)

#define MP_ISA_QUANTIZE_VECTOR 1

// As EncodeVector, for what is no NaN. The two constants that the code is off by are in the number that is added to
// round, whose low bits stay even, so that ties still go to even.
template <DType kTo> class EncodeFinite {
    static constexpr int kDrop =
        23 - (kTo == DType::fp8_e4m3 ? 3 : (kTo == DType::fp8_e5m2 ? 2 : 1));
    static constexpr int kMinExponent =
        kTo == DType::fp8_e4m3 ? -6 : (kTo == DType::fp8_e5m2 ? -14 : 0);
    static constexpr int kSmallest = (127 + kMinExponent) << 23;
    static constexpr int kOffset = (0x100 - ((kSmallest >> kDrop) & 0xff)) & 0xff;
    static_assert(kOffset % 2 == 0);

    __m512 limit_ = held_floats(max_finite(kTo));
    __m512i exponent_ = held_ints(0x7f800000);
    __m512i smallest_ = held_ints(kSmallest);
    __m512i magic_ = held_ints((kDrop << 23) + kOffset);

  public:
    // The code of |y| in the low 8 bits of each lane.
    MP_ISA_INLINE __m512i magnitude_of(__m512 y) const {
        const __m512 magnitude = _mm512_range_ps(y, limit_, 0xA);
        const __m512i binade = _mm512_max_epi32(
            _mm512_and_si512(_mm512_castps_si512(magnitude), exponent_), smallest_);
        const __m512i magic = _mm512_add_epi32(binade, magic_);
        const __m512 sum = _mm512_add_round_ps(magnitude, _mm512_castsi512_ps(magic),
                                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        return _mm512_add_epi32(_mm512_castps_si512(sum), _mm512_srli_epi32(binade, kDrop));
    }
};

// One factor for 32 elements, or each one's own.
struct WideFactors {
    __m512 first;
    __m512 second;
};
template <DType kFrom>
MP_ISA_INLINE WideFactors load_factors(const float* factor, __mmask32 lanes) {
    const __m512 first = _mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes), factor);
    const __m512 second = _mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes >> 16), factor + 16);
    if constexpr (kFrom == DType::bf16) {
        const __m512i even =
            _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
        return {_mm512_permutex2var_ps(first, even, second),
                _mm512_permutex2var_ps(first, odd, second)};
    } else {
        return {first, second};
    }
}

// Of two blocks of 16 elements.
template <DType kFrom> MP_ISA_INLINE WideFactors two_factors(const float* factor) {
    const __m512 first = _mm512_set1_ps(factor[0]);
    const __m512 second = _mm512_set1_ps(factor[1]);
    if constexpr (kFrom == DType::bf16) {
        const __m512 halves = _mm512_mask_mov_ps(first, 0xff00, second);
        return {halves, halves};
    } else {
        return {first, second};
    }
}

// Of a few tiles at most: the counters of a lane have 16 bits.
struct VectorStats {
    __m512i largest;
    __m512i saturated;
    __m512i underflowed;
};

MP_ISA_INLINE VectorStats nothing_found() {
    const __m512i none = _mm512_setzero_si512();
    return {none, none, none};
}

template <DType kFrom> MP_ISA_INLINE __mmask32 nonzero_words(const WideWords& x) {
    if constexpr (kFrom == DType::fp32) {
        const __m512i all = _mm512_set1_epi32(0x7fffffff);
        const __mmask32 first = _mm512_test_epi32_mask(_mm512_castps_si512(x.first), all);
        const __mmask32 second = _mm512_test_epi32_mask(_mm512_castps_si512(x.second), all);
        return first | (second << 16);
    } else {
        return _mm512_test_epi16_mask(x.codes, _mm512_set1_epi16(0x7fff));
    }
}

template <DType kFrom, DType kTo>
MP_ISA_INLINE void count_words(const WideWords& x, const WideFactors& by, __m512i codes,
                               VectorStats& stats) {
    const __m512 threshold = _mm512_set1_ps(numerics::saturation_threshold(kTo));
    const __m512 first = _mm512_abs_ps(_mm512_mul_ps(x.first, by.first));
    const __m512 second = _mm512_abs_ps(_mm512_mul_ps(x.second, by.second));
    const __mmask32 beyond = _mm512_cmp_ps_mask(first, threshold, _CMP_GE_OQ);
    const __mmask32 beyond_second = _mm512_cmp_ps_mask(second, threshold, _CMP_GE_OQ);
    const __mmask32 vanished =
        _mm512_mask_testn_epi16_mask(nonzero_words<kFrom>(x), codes, _mm512_set1_epi16(0x7f));
    const __m512i one = _mm512_set1_epi16(1);
    stats.saturated = _mm512_mask_add_epi16(stats.saturated, beyond | (beyond_second << 16),
                                            stats.saturated, one);
    stats.underflowed = _mm512_mask_add_epi16(stats.underflowed, vanished, stats.underflowed, one);
}

// What a span is quantized by: all constants.
template <DType kFrom, DType kTo, Gather kGather> class QuantizeWords {
    // bf16 times a power of two needs no fp32.
    static constexpr bool kIsE2m1 = kTo == DType::fp4_e2m1;
    static constexpr bool kMovesExponents =
        kFrom == DType::bf16 && !kIsE2m1 && kGather == Gather::nothing;
    static constexpr auto kSize = static_cast<int>(dtype_size(kFrom));
    using Moved = EncodeWords<DType::bf16, kIsE2m1 ? DType::fp8_e4m3 : kTo>;

    Widen<kFrom> widen_;
    EncodeFinite<kTo> encode_;
    __m512i sign_ = held_words(kIsE2m1 ? 0x8 : 0x80);
    Moved moved_{true};

    MP_ISA_INLINE void quantize(const char* from, const WideFactors& by, __mmask32 lanes, char* to,
                                VectorStats& stats) const {
        const WideWords x = widen_.load(from, lanes);
        const __m512i codes = widen_.join(encode_.magnitude_of(_mm512_mul_ps(x.first, by.first)),
                                          encode_.magnitude_of(_mm512_mul_ps(x.second, by.second)));
        // codes | (the sign in its place)
        const __m512i sign = _mm512_srli_epi16(x.codes, kIsE2m1 ? 12 : 8);
        store(_mm512_ternarylogic_epi32(codes, sign, sign_, 0xF8), lanes, to);
        if constexpr (kGather != Gather::nothing) {
            gather_amax<kFrom>(x, stats.largest);
        }
        if constexpr (kGather == Gather::counts) {
            count_words<kFrom, kTo>(x, by, codes, stats);
        }
    }

    static MP_ISA_INLINE void store(__m512i codes, __mmask32 lanes, char* to) {
        const __m256i bytes = _mm512_cvtepi16_epi8(codes);
        if (lanes == kAllLanes) {
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes);
        } else {
            _mm256_mask_storeu_epi8(to, lanes, bytes);
        }
    }

    MP_ISA_INLINE void move_exponents(const char* from, __m512i base, __mmask32 lanes,
                                      char* to) const {
        const __m512i x = _mm512_maskz_loadu_epi16(lanes, from);
        store(moved_.with_sign(moved_.magnitude_of(x, base), x), lanes, to);
    }

    // n elements with the same factor.
    MP_ISA_INLINE void run(const char* from, float factor, int n, char* to,
                           VectorStats& stats) const {
        const int base = kMovesExponents ? Moved::base_for(factor) : 0;
        int i = 0;
        if (base != 0) {
            const __m512i words = _mm512_set1_epi16(static_cast<short>(base));
            for (; i + 32 <= n; i += 32) {
                move_exponents(from + 2 * i, words, kAllLanes, to + i);
            }
            if (i < n) {
                move_exponents(from + 2 * i, words, first_lanes(n - i), to + i);
            }
            return;
        }
        const __m512 same = _mm512_set1_ps(factor);
        for (; i + 32 <= n; i += 32) {
            quantize(from + i * kSize, {same, same}, kAllLanes, to + i, stats);
        }
        if (i < n) {
            quantize(from + i * kSize, {same, same}, first_lanes(n - i), to + i, stats);
        }
    }

  public:
    // The first factor belongs to the block of `width` columns whose first `before` columns are not there; width 0:
    // to all.
    MP_ISA_INLINE void blocks(const char* from, int n, const float* factor, int64_t width,
                              int64_t before, char* to, VectorStats& stats) const {
        int done = 0;
        if (width == 32 && before == 0) { // MX: one vector a block
            for (; done + 32 <= n; done += 32) {
                run(from + done * kSize, *factor++, 32, to + done, stats);
            }
        }
        if (width == 16 && before == 0) { // NVFP4: two
            for (; done + 32 <= n; done += 32, factor += 2) {
                quantize(from + done * kSize, two_factors<kFrom>(factor), kAllLanes, to + done,
                         stats);
            }
        }
        while (done < n) {
            const int here = width == 0 ? n : min_int(n - done, width - before);
            run(from + done * kSize, *factor++, here, to + done, stats);
            done += here;
            before = 0;
        }
    }

    // Each element has its own factor.
    MP_ISA_INLINE void columns(const char* from, int n, const float* factor, char* to,
                               VectorStats& stats) const {
        for (int i = 0; i < n; i += 32) {
            const __mmask32 lanes = first_lanes(n - i);
            quantize(from + i * kSize, load_factors<kFrom>(factor + i, lanes), lanes, to + i,
                     stats);
        }
    }
};

template <DType kFrom, DType kTo, Gather kGather>
MP_ISA_FUNCTION void quantize_blocks(const char* from, int n, const float* factor, int64_t width,
                                     int64_t before, char* to, VectorStats& stats) {
    const QuantizeWords<kFrom, kTo, kGather> words;
    if (width == 1) {
        words.columns(from, n, factor, to, stats);
    } else {
        words.blocks(from, n, factor, width, before, to, stats);
    }
}

template <DType kFrom> MP_ISA_INLINE uint32_t amax_of(const VectorStats& found) {
    return gathered_amax<kFrom>(found.largest);
}
MP_ISA_INLINE int sum_of_words(__m512i counts) {
    return _mm512_reduce_add_epi32(_mm512_madd_epi16(counts, _mm512_set1_epi16(1)));
}
MP_ISA_INLINE int saturated_of(const VectorStats& found) { return sum_of_words(found.saturated); }
MP_ISA_INLINE int underflowed_of(const VectorStats& found) {
    return sum_of_words(found.underflowed);
}

// The exponents that bf16 in these columns move by; false where one of the factors is no power of two, or its way is closed.
template <DType kTo> MP_ISA_FUNCTION bool find_moves(const float* factors, int n, uint16_t* moves) {
    int closed = 0;
    MP_ISA_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        const int base = EncodeWords<DType::bf16, kTo>::base_for(factors[i]);
        moves[i] = static_cast<uint16_t>(base);
        closed += base == 0 ? 1 : 0;
    }
    return closed == 0;
}

// Finite bf16, each times the factor of its own column.
template <DType kTo>
MP_ISA_FUNCTION void move_columns_as(const char* from, const uint16_t* moves, int n, char* to) {
    const EncodeWords<DType::bf16, kTo> moved(true);
    for (int i = 0; i < n; i += 32) {
        const __mmask32 lanes = first_lanes(n - i);
        const __m512i x = _mm512_maskz_loadu_epi16(lanes, from + 2 * i);
        const __m512i base = _mm512_maskz_loadu_epi16(lanes, moves + i);
        const __m256i codes = _mm512_cvtepi16_epi8(moved.with_sign(moved.magnitude_of(x, base), x));
        _mm256_mask_storeu_epi8(to + i, lanes, codes);
    }
}

MP_ISA_INLINE bool find_moves(DType to, const float* factors, int n, uint16_t* moves) {
    return to == DType::fp8_e4m3 ? find_moves<DType::fp8_e4m3>(factors, n, moves)
                                 : find_moves<DType::fp8_e5m2>(factors, n, moves);
}
MP_ISA_INLINE void move_columns(DType to, const void* source, const uint16_t* moves, int n,
                                unsigned char* codes) {
    const char* from = static_cast<const char*>(source);
    char* out = reinterpret_cast<char*>(codes);
    if (to == DType::fp8_e4m3) {
        move_columns_as<DType::fp8_e4m3>(from, moves, n, out);
    } else {
        move_columns_as<DType::fp8_e5m2>(from, moves, n, out);
    }
}

#endif

} // namespace mp::backends::host::MP_ISA_NAMESPACE
