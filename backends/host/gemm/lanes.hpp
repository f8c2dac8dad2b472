// SPDX-License-Identifier: Apache-2.0
// Vectors of 32-bit words: the widest this instruction set has, reading operands into them, and
// transposing a square of them.
#pragma once

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include <utility>

#include "host/kernels/base.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

typedef uint32_t Words __attribute__((vector_size(4 * kLanes)));
typedef uint16_t Halves __attribute__((vector_size(2 * kLanes)));

typedef uint8_t Bytes __attribute__((vector_size(kLanes)));

// How the elements of an operand become packed words. Pairs are of bf16, which every fp8 number is.
enum class Kind { fp32, bf16, fp16, e4m3, e5m2, bf16_pairs, e4m3_pairs, e5m2_pairs };

constexpr bool is_pair(Kind kind) {
    return kind == Kind::bf16_pairs || kind == Kind::e4m3_pairs || kind == Kind::e5m2_pairs;
}
constexpr bool is_e4m3(Kind kind) { return kind == Kind::e4m3 || kind == Kind::e4m3_pairs; }
constexpr bool is_code(Kind kind) {
    return is_e4m3(kind) || kind == Kind::e5m2 || kind == Kind::e5m2_pairs;
}
constexpr int64_t element_size(Kind kind) {
    return kind == Kind::fp32 ? 4 : (is_code(kind) ? 1 : 2);
}

MP_ISA_INLINE Words load_halves(const void* from) {
    Halves halves;
    __builtin_memcpy(&halves, from, sizeof(halves));
    return __builtin_convertvector(halves, Words);
}

// fp16 numbers as fp32.
MP_ISA_INLINE Words widen_fp16(const Halves& from) {
    Words words;
#if defined(__AVX512F__)
    const __m512 values = _mm512_cvtph_ps((__m256i)from);
    __builtin_memcpy(&words, &values, sizeof(words));
#elif defined(__F16C__)
    const __m256 values = _mm256_cvtph_ps((__m128i)from);
    __builtin_memcpy(&words, &values, sizeof(words));
#else
    float values[kLanes];
    for (int i = 0; i < kLanes; ++i) {
        values[i] = numerics::Codec<DType::fp16>::load(from[i]);
    }
    __builtin_memcpy(&words, values, sizeof(words));
#endif
    return words;
}

MP_ISA_INLINE Words load_fp16(const void* from) {
    Halves halves;
    __builtin_memcpy(&halves, from, sizeof(halves));
    return widen_fp16(halves);
}

// The product of fp32 numbers.
MP_ISA_INLINE Words multiply_words(const Words& a, const Words& b) {
    typedef float Values __attribute__((vector_size(sizeof(Words))));
    return (Words)((Values)a * (Values)b);
}

MP_ISA_INLINE Words same_words(float value) {
    uint32_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(bits));
    return Words{} + bits;
}

// fp8 codes, one in each half, as fp32. E5M2 is the upper byte of fp16. E4M3 with its exponent field moved
// up by one bit less than its sign is an fp16 number, subnormals included, of 2^-8 times the value: the
// difference of the two exponent biases.
template <Kind kKind> MP_ISA_INLINE Words widen_codes(const Halves& codes) {
    const Halves shifted = codes << 8;
    if constexpr (is_e4m3(kKind)) {
        const Halves magnitude = shifted & uint16_t{0x7f00};
        const Halves sign = shifted ^ magnitude;
        const Halves is_nan = (Halves)(magnitude == uint16_t{0x7f00});
        // 0x3f80, what a NaN's code becomes, to the quiet NaN 0x7e00.
        const Halves change = is_nan & uint16_t{0x3f80 ^ 0x7e00};
        return multiply_words(widen_fp16(((magnitude >> 1) | sign) ^ change), same_words(256.0F));
    } else {
        return widen_fp16(shifted);
    }
}

template <Kind kKind> MP_ISA_INLINE Words load_codes(const void* from) {
    Bytes bytes;
    __builtin_memcpy(&bytes, from, sizeof(bytes));
    return widen_codes<kKind>(__builtin_convertvector(bytes, Halves));
}

// Two fp32 words that are bf16 numbers, as one word.
MP_ISA_INLINE Words pair_words(const Words& low, const Words& high) {
    return (low >> 16) | (high & 0xffff0000U);
}

// Packed words times one fp32 factor for each lane; products of pairs are bf16 numbers, as folding requires.
template <Kind kKind> MP_ISA_INLINE Words multiply_packed(const Words& words, const Words& factor) {
    if constexpr (is_pair(kKind)) {
        return pair_words(multiply_words(words << 16, factor),
                          multiply_words(words & 0xffff0000U, factor));
    } else {
        return multiply_words(words, factor);
    }
}

// kLanes words from consecutive elements (pairs: from twice as many).
template <Kind kKind> MP_ISA_INLINE Words load(const void* from) {
    Words words;
    if constexpr (kKind == Kind::bf16) {
        words = load_halves(from) << 16;
    } else if constexpr (kKind == Kind::fp16) {
        words = load_fp16(from);
    } else if constexpr (is_code(kKind) && is_pair(kKind)) {
        Halves codes;
        __builtin_memcpy(&codes, from, sizeof(codes));
        words =
            pair_words(widen_codes<kKind>(codes & uint16_t{0xff}), widen_codes<kKind>(codes >> 8));
    } else if constexpr (is_code(kKind)) {
        words = load_codes<kKind>(from);
    } else {
        __builtin_memcpy(&words, from, sizeof(words));
    }
    return words;
}

// The same from only `bytes` bytes; what is missing reads as 0.
template <Kind kKind> MP_ISA_INLINE Words load_some(const void* from, int64_t bytes) {
    unsigned char buffer[sizeof(Words)] = {};
    __builtin_memcpy(buffer, from, static_cast<std::size_t>(bytes));
    return load<kKind>(buffer);
}

// Exchanges the lanes of two rows whose numbers differ in the bit kStep: one step of transposing a matrix
// of 2 x 2 blocks.
template <int kStep, int... kLane>
MP_ISA_INLINE void exchange(Words& low, Words& high, std::integer_sequence<int, kLane...>) {
    const Words a = low;
    const Words b = high;
    low = __builtin_shufflevector(a, b, ((kLane & kStep) == 0 ? kLane : kLane - kStep + kLanes)...);
    high =
        __builtin_shufflevector(a, b, ((kLane & kStep) == 0 ? kLane + kStep : kLane + kLanes)...);
}

template <int kStep> MP_ISA_INLINE void exchange_all(Words (&rows)[kLanes]) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
        if ((i & kStep) == 0) {
            exchange<kStep>(rows[i], rows[i + kStep], std::make_integer_sequence<int, kLanes>());
        }
    }
}

// rows[i][j] becomes rows[j][i].
MP_ISA_INLINE void transpose(Words (&rows)[kLanes]) {
    exchange_all<1>(rows);
    exchange_all<2>(rows);
    if constexpr (kLanes >= 8) {
        exchange_all<4>(rows);
    }
    if constexpr (kLanes >= 16) {
        exchange_all<8>(rows);
    }
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
