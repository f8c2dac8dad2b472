// SPDX-License-Identifier: Apache-2.0
// 32 elements of fp32, fp16 or bf16 as fp32 in two AVX-512 vectors, their magnitudes' maximum, and the way back to lanes
// of 16 bits.
#pragma once

#include "host/kernels/block_amax.hpp"
#include "host/kernels/fp8_words.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// What is gathered where elements are quantized.
enum class Gather { nothing, amax, counts };

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define MP_ISA_WIDE_WORDS 1

MP_ISA_INLINE __m512 held_floats(float x) {
    return _mm512_castsi512_ps(held(_mm512_castps_si512(_mm512_set1_ps(x))));
}
MP_ISA_INLINE __m512i held_ints(int x) { return held(_mm512_set1_epi32(x)); }

inline constexpr __mmask32 kAllLanes = 0xffffffffU;
MP_ISA_INLINE __mmask32 first_lanes(int n) {
    return n >= 32 ? kAllLanes : (__mmask32{1} << n) - 1U;
}

MP_ISA_INLINE __m512i word_numbers(int first, int step) {
    alignas(64) uint16_t numbers[32];
    for (int i = 0; i < 32; ++i) {
        numbers[i] = static_cast<uint16_t>(first + i * step);
    }
    return _mm512_load_si512(numbers);
}

// 32 elements as fp32. bf16: those with even and those with odd numbers, which is how they lie in words of 32 bits;
// others: the first 16 and the rest.
struct WideWords {
    __m512 first;
    __m512 second;
    __m512i
        codes; // each element's sign in bit 15 of its lane: the element itself, or the upper half of fp32
};

// The constants of widening and of the way back; make one before the loop.
template <DType kFrom> class Widen {
    __m512i upper_ = held_ints(static_cast<int>(0xffff0000U));
    __m512i even_ = held(word_numbers(0, 2));
    __m512i odd_ = held(word_numbers(1, 2));

  public:
    // What is not in `lanes` is 0 and touches no memory.
    MP_ISA_INLINE WideWords load(const char* at, __mmask32 lanes) const {
        if constexpr (kFrom == DType::fp32) {
            const auto rest = static_cast<__mmask16>(lanes >> 16);
            const __m512 first = _mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes), at);
            const __m512 second = _mm512_maskz_loadu_ps(rest, at + 64);
            return {first, second,
                    _mm512_permutex2var_epi16(_mm512_castps_si512(first), odd_,
                                              _mm512_castps_si512(second))};
        } else {
            const __m512i codes = _mm512_maskz_loadu_epi16(lanes, at);
            if constexpr (kFrom == DType::bf16) {
                return {_mm512_castsi512_ps(_mm512_slli_epi32(codes, 16)),
                        _mm512_castsi512_ps(_mm512_and_si512(codes, upper_)), codes};
            } else {
                return {_mm512_cvtph_ps(_mm512_castsi512_si256(codes)),
                        _mm512_cvtph_ps(_mm512_extracti64x4_epi64(codes, 1)), codes};
            }
        }
    }

    // The lower halves of lanes that came from load(), in the order of the elements.
    MP_ISA_INLINE __m512i join(__m512i first, __m512i second) const {
        if constexpr (kFrom == DType::bf16) {
            return _mm512_mask_blend_epi16(0xaaaaaaaaU, first, _mm512_slli_epi32(second, 16));
        } else {
            return _mm512_permutex2var_epi16(first, even_, second);
        }
    }
};

template <DType kFrom> MP_ISA_INLINE void gather_amax(const WideWords& x, __m512i& largest) {
    if constexpr (kFrom == DType::fp32) {
        const __m512i all = _mm512_set1_epi32(0x7fffffff);
        const __m512i first = _mm512_and_si512(_mm512_castps_si512(x.first), all);
        const __m512i second = _mm512_and_si512(_mm512_castps_si512(x.second), all);
        largest = _mm512_max_epi32(_mm512_max_epi32(largest, first), second);
    } else {
        const __m512i size = _mm512_and_si512(x.codes, _mm512_set1_epi16(0x7fff));
        largest = _mm512_max_epi16(largest, size);
    }
}

// The fp32 pattern of what was gathered; infinity and NaN as something not below infinity.
template <DType kFrom> MP_ISA_INLINE uint32_t gathered_amax(__m512i largest) {
    if constexpr (kFrom != DType::fp32) {
        const __m512i upper = _mm512_srli_epi32(largest, 16);
        largest = _mm512_and_si512(_mm512_max_epi16(largest, upper), _mm512_set1_epi32(0xffff));
    }
    const auto found = static_cast<uint32_t>(_mm512_reduce_max_epi32(largest));
    return widen_magnitude<kFrom>(static_cast<typename Magnitude<kFrom>::Code>(found));
}

#endif

} // namespace mp::backends::host::MP_ISA_NAMESPACE
