// SPDX-License-Identifier: Apache-2.0
// As quantize_wide.hpp by AVX2: 32 elements as four vectors of 8. The rounding mode is the default one
// (process/float_environment.hpp).
#pragma once

#include "host/kernels/fp8_vector.hpp"
#include "host/kernels/wide_words.hpp"
#include "numerics/quantize.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

#if defined(__AVX2__) && defined(__F16C__) && !defined(MP_ISA_WIDE_WORDS)
#define MP_ISA_QUANTIZE_VECTOR 1

struct VectorStats {
    __m256i largest;
    __m256i saturated;
    __m256i zeros;
    __m256i zero_codes;
};
MP_ISA_INLINE VectorStats nothing_found() {
    const __m256i none = _mm256_setzero_si256();
    return {none, none, none, none};
}

struct EightFactors {
    __m256 of[4];
};

template <DType kFrom, DType kTo, Gather kGather> class QuantizeEights {
    static constexpr bool kIsE2m1 = kTo == DType::fp4_e2m1;
    static constexpr auto kSize = static_cast<int>(dtype_size(kFrom));

    EncodeEights<kTo> encode_{max_finite(kTo)};
    __m256 size_ = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));

    MP_ISA_INLINE void gather(const __m256& x, const __m256& size, VectorStats& stats) const {
        const __m256i bits = _mm256_castps_si256(_mm256_and_ps(x, size_));
        stats.largest = _mm256_max_epi32(stats.largest, bits);
        if constexpr (kGather == Gather::counts) {
            const __m256 threshold = _mm256_set1_ps(numerics::saturation_threshold(kTo));
            const __m256i beyond = _mm256_castps_si256(_mm256_cmp_ps(size, threshold, _CMP_GE_OQ));
            const __m256i is_zero = _mm256_cmpeq_epi32(bits, _mm256_setzero_si256());
            stats.saturated = _mm256_sub_epi32(stats.saturated, beyond);
            stats.zeros = _mm256_sub_epi32(stats.zeros, is_zero);
        }
    }

    MP_ISA_INLINE void quantize(const char* from, const EightFactors& by, char* to,
                                VectorStats& stats) const {
        __m256 x[4];
        __m256i codes[4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
            x[j] = load_eight_of<kFrom>(from + 8 * j * kSize);
            const __m256 size = _mm256_and_ps(_mm256_mul_ps(x[j], by.of[j]), size_);
            codes[j] = encode_.magnitude_of(size);
            if constexpr (kGather != Gather::nothing) {
                gather(x[j], size, stats);
            }
        }
        const __m256i bytes = encode_.join(codes, x);
        store_packed(bytes, to);
        if constexpr (kGather == Gather::counts) {
            const __m256i magnitude = _mm256_and_si256(bytes, _mm256_set1_epi8(kIsE2m1 ? 7 : 127));
            const __m256i none = _mm256_setzero_si256();
            const __m256i zero = _mm256_sub_epi8(none, _mm256_cmpeq_epi8(magnitude, none));
            stats.zero_codes = _mm256_add_epi32(stats.zero_codes, _mm256_sad_epu8(zero, none));
        }
    }

    // Fewer than 32, beside zeros. Those have a code of zero each, which counts as theirs.
    MP_ISA_INLINE void quantize_rest(const char* from, int n, const EightFactors& by, char* to,
                                     VectorStats& stats) const {
        alignas(32) char padded[32 * 4] = {};
        alignas(32) char codes[32];
        __builtin_memcpy(padded, from, static_cast<std::size_t>(n) * kSize);
        quantize(padded, by, codes, stats);
        __builtin_memcpy(to, codes, static_cast<std::size_t>(n));
    }

    static MP_ISA_INLINE EightFactors same(float factor) {
        const __m256 by = _mm256_set1_ps(factor);
        return {{by, by, by, by}};
    }

    MP_ISA_INLINE void run(const char* from, float factor, int n, char* to,
                           VectorStats& stats) const {
        const EightFactors by = same(factor);
        int i = 0;
        for (; i + 32 <= n; i += 32) {
            quantize(from + i * kSize, by, to + i, stats);
        }
        if (i < n) {
            quantize_rest(from + i * kSize, n - i, by, to + i, stats);
        }
    }

  public:
    // The first factor belongs to the block of `width` columns whose first `before` columns are not there; width 0:
    // to all.
    MP_ISA_INLINE void blocks(const char* from, int n, const float* factor, int64_t width,
                              int64_t before, char* to, VectorStats& stats) const {
        int done = 0;
        if (width == 32 && before == 0) { // MX
            for (; done + 32 <= n; done += 32) {
                quantize(from + done * kSize, same(*factor++), to + done, stats);
            }
        }
        if (width == 16 && before == 0) { // NVFP4
            for (; done + 32 <= n; done += 32, factor += 2) {
                const __m256 first = _mm256_set1_ps(factor[0]);
                const __m256 second = _mm256_set1_ps(factor[1]);
                quantize(from + done * kSize, {{first, first, second, second}}, to + done, stats);
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
        const auto load = [](const float* at) MP_INLINED -> EightFactors {
            return {{_mm256_loadu_ps(at), _mm256_loadu_ps(at + 8), _mm256_loadu_ps(at + 16),
                     _mm256_loadu_ps(at + 24)}};
        };
        int i = 0;
        for (; i + 32 <= n; i += 32) {
            quantize(from + i * kSize, load(factor + i), to + i, stats);
        }
        if (i < n) {
            alignas(32) float padded[32] = {};
            __builtin_memcpy(padded, factor + i, static_cast<std::size_t>(n - i) * sizeof(float));
            quantize_rest(from + i * kSize, n - i, load(padded), to + i, stats);
        }
    }
};

MP_ISA_INLINE int sum_of_lanes(__m256i counts) {
    alignas(32) int32_t lanes[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), counts);
    int sum = 0;
    for (const int32_t lane : lanes) {
        sum += lane;
    }
    return sum;
}

template <DType kFrom, DType kTo, Gather kGather>
MP_ISA_FUNCTION void quantize_blocks(const char* from, int n, const float* factor, int64_t width,
                                     int64_t before, char* to, VectorStats& stats) {
    const QuantizeEights<kFrom, kTo, kGather> eights;
    if (width == 1) {
        eights.columns(from, n, factor, to, stats);
    } else {
        eights.blocks(from, n, factor, width, before, to, stats);
    }
}

template <DType kFrom> MP_ISA_INLINE uint32_t amax_of(const VectorStats& found) {
    alignas(32) uint32_t lanes[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), found.largest);
    uint32_t largest = 0;
    for (const uint32_t lane : lanes) {
        raise(largest, lane);
    }
    return largest;
}
MP_ISA_INLINE int saturated_of(const VectorStats& found) { return sum_of_lanes(found.saturated); }
MP_ISA_INLINE int underflowed_of(const VectorStats& found) {
    return sum_of_lanes(_mm256_sub_epi32(found.zero_codes, found.zeros));
}

#endif

} // namespace mp::backends::host::MP_ISA_NAMESPACE
