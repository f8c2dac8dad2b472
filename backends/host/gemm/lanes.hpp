// SPDX-License-Identifier: Apache-2.0
// Vectors of 32-bit words: the widest this instruction set has, reading operands into them, and
// transposing a square of them.
#pragma once

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include <utility>

#include "kernels/chunk/base.hpp"

namespace mp::backends::host::MP_CHUNK_NAMESPACE {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

typedef uint32_t Words __attribute__((vector_size(4 * kLanes)));
typedef uint16_t Halves __attribute__((vector_size(2 * kLanes)));

// How the elements of an operand become packed words.
enum class Kind { fp32, bf16, fp16, bf16_pairs };

constexpr int64_t element_size(Kind kind) { return kind == Kind::fp32 ? 4 : 2; }

MP_CHUNK_INLINE Words load_halves(const void* from) {
    Halves halves;
    __builtin_memcpy(&halves, from, sizeof(halves));
    return __builtin_convertvector(halves, Words);
}

MP_CHUNK_INLINE Words load_fp16(const void* from) {
    Words words;
#if defined(__AVX512F__)
    __m256i halves;
    __builtin_memcpy(&halves, from, sizeof(halves));
    const __m512 values = _mm512_cvtph_ps(halves);
    __builtin_memcpy(&words, &values, sizeof(words));
#elif defined(__F16C__)
    __m128i halves;
    __builtin_memcpy(&halves, from, sizeof(halves));
    const __m256 values = _mm256_cvtph_ps(halves);
    __builtin_memcpy(&words, &values, sizeof(words));
#else
    uint16_t halves[kLanes];
    float values[kLanes];
    __builtin_memcpy(halves, from, sizeof(halves));
    for (int i = 0; i < kLanes; ++i) {
        values[i] = numerics::Codec<DType::fp16>::load(halves[i]);
    }
    __builtin_memcpy(&words, values, sizeof(words));
#endif
    return words;
}

// kLanes words from consecutive elements (pairs: from twice as many).
template <Kind kKind> MP_CHUNK_INLINE Words load(const void* from) {
    Words words;
    if constexpr (kKind == Kind::bf16) {
        words = load_halves(from) << 16;
    } else if constexpr (kKind == Kind::fp16) {
        words = load_fp16(from);
    } else {
        __builtin_memcpy(&words, from, sizeof(words));
    }
    return words;
}

// The same from only `bytes` bytes; what is missing reads as 0.
template <Kind kKind> MP_CHUNK_INLINE Words load_some(const void* from, int64_t bytes) {
    unsigned char buffer[sizeof(Words)] = {};
    __builtin_memcpy(buffer, from, static_cast<std::size_t>(bytes));
    return load<kKind>(buffer);
}

// Exchanges the lanes of two rows whose numbers differ in the bit kStep: one step of transposing a matrix
// of 2 x 2 blocks.
template <int kStep, int... kLane>
MP_CHUNK_INLINE void exchange(Words& low, Words& high, std::integer_sequence<int, kLane...>) {
    const Words a = low;
    const Words b = high;
    low = __builtin_shufflevector(a, b, ((kLane & kStep) == 0 ? kLane : kLane - kStep + kLanes)...);
    high =
        __builtin_shufflevector(a, b, ((kLane & kStep) == 0 ? kLane + kStep : kLane + kLanes)...);
}

template <int kStep> MP_CHUNK_INLINE void exchange_all(Words (&rows)[kLanes]) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
        if ((i & kStep) == 0) {
            exchange<kStep>(rows[i], rows[i + kStep], std::make_integer_sequence<int, kLanes>());
        }
    }
}

// rows[i][j] becomes rows[j][i].
MP_CHUNK_INLINE void transpose(Words (&rows)[kLanes]) {
    exchange_all<1>(rows);
    exchange_all<2>(rows);
    if constexpr (kLanes >= 8) {
        exchange_all<4>(rows);
    }
    if constexpr (kLanes >= 16) {
        exchange_all<8>(rows);
    }
}

} // namespace mp::backends::host::MP_CHUNK_NAMESPACE
