// SPDX-License-Identifier: Apache-2.0
// Finite fp32, fp16 and bf16 times a factor to fp8 by AVX-512, with the statistics and the amax of what passes, and
// bit-equal to numerics/quantize.hpp. Other targets take the loops of quantize_tile.hpp.
#pragma once

#include "kernels/chunk/convert_vector.hpp"
#include "kernels/chunk/fp8_vector.hpp"
#include "numerics/quantize.hpp"

namespace mp::kernels::MP_CHUNK_NAMESPACE {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

inline constexpr bool kHasQuantizeVector = true;

// EncodeVector::encode() for what is no NaN. The two constants that the code is off by are in the number that is
// added to round, whose low bits stay even, so that ties still go to even.
template <int kMantissaBits, int kMinExponent> struct EncodeFinite {
    static constexpr int kDrop = 23 - kMantissaBits;
    static constexpr int kSmallest = (127 + kMinExponent) << 23;
    static constexpr int kOffset = (0x100 - ((kSmallest >> kDrop) & 0xff)) & 0xff;
    static_assert(kOffset % 2 == 0);

    // The code in the low 8 bits of each lane, without sign.
    static MP_CHUNK_INLINE __m512i magnitude_of(__m512 y, __m512 limit) {
        const __m512 magnitude = _mm512_range_ps(y, limit, 0xA);
        const __m512i binade =
            _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(magnitude),
                                              _mm512_set1_epi32(static_cast<int>(0x7f800000U))),
                             _mm512_set1_epi32(kSmallest));
        const __m512i magic = _mm512_add_epi32(binade, _mm512_set1_epi32((kDrop << 23) + kOffset));
        const __m512 sum = _mm512_add_round_ps(magnitude, _mm512_castsi512_ps(magic),
                                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        return _mm512_add_epi32(_mm512_castps_si512(sum), _mm512_srli_epi32(binade, kDrop));
    }
};

template <DType kFp8> MP_CHUNK_INLINE __m512i finite_magnitude(__m512 y) {
    if constexpr (kFp8 == DType::fp8_e4m3) {
        return EncodeFinite<3, -6>::magnitude_of(y, _mm512_set1_ps(numerics::kE4m3Max));
    } else {
        return EncodeFinite<2, -14>::magnitude_of(y, _mm512_set1_ps(numerics::kE5m2Max));
    }
}

// What is gathered on the way.
struct VectorStats {
    __m512i largest;
    __m512i saturated;
    __m512i underflowed;
};

template <DType kFrom, DType kFp8, bool kGathers>
MP_CHUNK_INLINE void quantize_lanes(const char* from, __m512 factor, __mmask16 lanes, char* to,
                                    VectorStats& stats) {
    const __m512 x = load_lanes<kFrom>(from, lanes);
    const __m512 y = _mm512_mul_ps(x, factor);
    const __m512i magnitude = finite_magnitude<kFp8>(y);
    const __m512i sign = _mm512_srli_epi32(_mm512_castps_si512(y), 24);
    // magnitude | (sign & 0x80)
    const __m512i codes = _mm512_ternarylogic_epi32(magnitude, sign, _mm512_set1_epi32(0x80), 0xF8);
    _mm_mask_storeu_epi8(to, lanes, _mm512_cvtepi32_epi8(codes));
    if constexpr (kGathers) {
        const __m512i all = _mm512_set1_epi32(0x7fffffff);
        const __m512i size = _mm512_and_si512(_mm512_castps_si512(x), all);
        const __mmask16 beyond = _mm512_cmp_ps_mask(
            _mm512_abs_ps(y), _mm512_set1_ps(numerics::saturation_threshold(kFp8)), _CMP_GE_OQ);
        const __mmask16 vanished = _mm512_mask_testn_epi32_mask(_mm512_test_epi32_mask(size, all),
                                                                magnitude, _mm512_set1_epi32(0x7f));
        stats.largest = _mm512_max_epi32(stats.largest, size);
        const __m512i one = _mm512_set1_epi32(1);
        stats.saturated = _mm512_mask_add_epi32(stats.saturated, beyond, stats.saturated, one);
        stats.underflowed =
            _mm512_mask_add_epi32(stats.underflowed, vanished, stats.underflowed, one);
    }
}

// n elements whose factor is the same, or, with kEach, each one's own.
template <DType kFrom, DType kFp8, bool kGathers, bool kEach>
MP_CHUNK_INLINE void quantize_run(const char* from, const float* factor, int n, char* to,
                                  VectorStats& stats) {
    constexpr auto kSize = static_cast<int>(dtype_size(kFrom));
    const __m512 same = _mm512_set1_ps(*factor);
    constexpr __mmask16 kAll = 0xffff;
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m512 by = kEach ? _mm512_loadu_ps(factor + i) : same;
        quantize_lanes<kFrom, kFp8, kGathers>(from + i * kSize, by, kAll, to + i, stats);
    }
    if (i < n) {
        const auto lanes = static_cast<__mmask16>((1U << (n - i)) - 1U);
        const __m512 by = kEach ? _mm512_maskz_loadu_ps(lanes, factor + i) : same;
        quantize_lanes<kFrom, kFp8, kGathers>(from + i * kSize, by, lanes, to + i, stats);
    }
}

template <DType kFrom, DType kFp8, bool kGathers>
MP_CHUNK_FUNCTION void quantize_blocks(const char* from, int n, const float* factor, int64_t width,
                                       int64_t before, char* to, VectorStats& stats) {
    if (width == 1) {
        quantize_run<kFrom, kFp8, kGathers, true>(from, factor, n, to, stats);
        return;
    }
    for (int done = 0; done < n; ++factor) {
        const int here = width == 0 ? n : min_int(n - done, width - before);
        quantize_run<kFrom, kFp8, kGathers, false>(from + done * dtype_size(kFrom), factor, here,
                                                   to + done, stats);
        done += here;
        before = 0;
    }
}

template <DType kFrom, bool kGathers>
MP_CHUNK_INLINE void quantize_to(DType to, const char* from, int n, const float* factor,
                                 int64_t width, int64_t before, char* codes, VectorStats& stats) {
    if (to == DType::fp8_e4m3) {
        quantize_blocks<kFrom, DType::fp8_e4m3, kGathers>(from, n, factor, width, before, codes,
                                                          stats);
    } else {
        quantize_blocks<kFrom, DType::fp8_e5m2, kGathers>(from, n, factor, width, before, codes,
                                                          stats);
    }
}

template <bool kGathers>
MP_CHUNK_INLINE void quantize_from(DType from, DType to, const void* source, int n,
                                   const float* factor, int64_t width, int64_t before,
                                   unsigned char* codes, VectorStats& stats) {
    const char* at = static_cast<const char*>(source);
    char* out = reinterpret_cast<char*>(codes);
    switch (from) {
    case DType::bf16:
        return quantize_to<DType::bf16, kGathers>(to, at, n, factor, width, before, out, stats);
    case DType::fp16:
        return quantize_to<DType::fp16, kGathers>(to, at, n, factor, width, before, out, stats);
    default:
        return quantize_to<DType::fp32, kGathers>(to, at, n, factor, width, before, out, stats);
    }
}

// Adds to the statistics all but their number of elements. False, with nothing added, where something was not
// finite; what was written then means nothing.
MP_CHUNK_INLINE bool quantize_gathering(DType from, DType to, const void* source, int n,
                                        const float* factor, int64_t width, int64_t before,
                                        unsigned char* codes, numerics::QuantStats& stats) {
    VectorStats found = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
    quantize_from<true>(from, to, source, n, factor, width, before, codes, found);
    const auto largest = static_cast<uint32_t>(_mm512_reduce_max_epi32(found.largest));
    stats.amax_bits = largest > stats.amax_bits ? largest : stats.amax_bits;
    if (largest >= numerics::kFloatInfinity) {
        return false;
    }
    stats.saturated += _mm512_reduce_add_epi32(found.saturated);
    stats.underflowed += _mm512_reduce_add_epi32(found.underflowed);
    return true;
}

MP_CHUNK_INLINE void quantize_plainly(DType from, DType to, const void* source, int n,
                                      const float* factor, int64_t width, int64_t before,
                                      unsigned char* codes) {
    VectorStats none = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
    quantize_from<false>(from, to, source, n, factor, width, before, codes, none);
}

#else

inline constexpr bool kHasQuantizeVector = false;

MP_CHUNK_INLINE bool quantize_gathering(DType, DType, const void*, int, const float*, int64_t,
                                        int64_t, unsigned char*, numerics::QuantStats&) {
    return false;
}
MP_CHUNK_INLINE void quantize_plainly(DType, DType, const void*, int, const float*, int64_t,
                                      int64_t, unsigned char*) {}

#endif

} // namespace mp::kernels::MP_CHUNK_NAMESPACE
