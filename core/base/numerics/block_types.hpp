// SPDX-License-Identifier: Apache-2.0
// The types of block_types.def as fp32 numbers. Every operation is one of fp32, rounded by itself, in the order of ggml's own
// dequantizers (ggml-quants.c): the bits are theirs. A scale that is no number gives numbers that are none.
#pragma once

#include <cstdint>

#include "dtype/dtype.hpp"
#include "numerics/codec.hpp"

namespace mp::numerics {

inline constexpr int64_t kMostBlockElements = 256;

namespace detail {

// Blocks lie at any byte.
MP_HD_INLINE float half_at(const uint8_t* bytes) {
    return fp16_to_float(static_cast<uint16_t>(bytes[0] | bytes[1] << 8));
}
MP_HD_INLINE uint32_t word_at(const uint8_t* bytes) {
    return static_cast<uint32_t>(bytes[0]) | static_cast<uint32_t>(bytes[1]) << 8 |
           static_cast<uint32_t>(bytes[2]) << 16 | static_cast<uint32_t>(bytes[3]) << 24;
}
MP_HD_INLINE float number(int32_t code) { return static_cast<float>(code); }

// 32 elements in 16 bytes: the low halves are the first 16. `high`: a bit of each, above the four.
template <class Value>
MP_HD_INLINE void load_halves(const uint8_t* codes, uint32_t high, const Value& value, float* out) {
    for (int32_t i = 0; i < 16; ++i) {
        const int32_t low_bit = static_cast<int32_t>(high >> i & 1U) << 4;
        const int32_t high_bit = static_cast<int32_t>(high >> (i + 16) & 1U) << 4;
        out[i] = value((codes[i] & 0xF) | low_bit);
        out[i + 16] = value(codes[i] >> 4 | high_bit);
    }
}

// The eight scales and minima of 6 bits in 12 bytes of Q4_K and Q5_K.
struct ScaleAndMin {
    int32_t scale;
    int32_t min;
};
MP_HD_INLINE ScaleAndMin scale_and_min(const uint8_t* bytes, int32_t i) {
    if (i < 4) {
        return {bytes[i] & 0x3F, bytes[i + 4] & 0x3F};
    }
    const int32_t low = bytes[i + 4];
    return {(low & 0xF) | (bytes[i - 4] >> 6) << 4, low >> 4 | (bytes[i] >> 6) << 4};
}

// 256 elements: eight times 32, two to a byte, each with a scale and a minimum. `high` null: four bits; else a bit of each more,
// those of the i-th 32 in bit i.
MP_HD_INLINE void load_k(const uint8_t* block, const uint8_t* codes, const uint8_t* high,
                         float* out) {
    const float d = half_at(block);
    const float d_min = half_at(block + 2);
    for (int32_t i = 0; i < 8; ++i) {
        const ScaleAndMin part = scale_and_min(block + 4, i);
        const float scale = d * number(part.scale);
        const float min = d_min * number(part.min);
        for (int32_t j = 0; j < 32; ++j) {
            const int32_t low = codes[(i / 2) * 32 + j] >> (i % 2 * 4) & 0xF;
            const int32_t more = high == nullptr ? 0 : (high[j] >> i & 1) << 4;
            out[i * 32 + j] = scale * number(low | more) - min;
        }
    }
}

MP_HD_INLINE void load_q6_k(const uint8_t* block, float* out) {
    const uint8_t* high = block + 128;
    const auto* scales = reinterpret_cast<const int8_t*>(block + 192);
    const float d = half_at(block + 208);
    for (int32_t i = 0; i < 256; ++i) {
        const int32_t half = i / 128, part = i % 128 / 32, at = i % 32;
        const int32_t low = block[half * 64 + part % 2 * 32 + at] >> (part / 2 * 4) & 0xF;
        const int32_t more = high[half * 32 + at] >> (part * 2) & 3;
        out[i] = d * number(scales[i / 16]) * number((low | more << 4) - 32);
    }
}

} // namespace detail

// All elements of one block.
MP_HD_INLINE void load_block(DType dtype, const void* data, float* out) {
    const auto* block = static_cast<const uint8_t*>(data);
    switch (dtype) {
    case DType::q4_0:
    case DType::q5_0: {
        const float d = detail::half_at(block);
        const bool is_five = dtype == DType::q5_0;
        const int32_t middle = is_five ? 16 : 8;
        const auto value = [=](int32_t code) { return d * detail::number(code - middle); };
        detail::load_halves(block + (is_five ? 6 : 2), is_five ? detail::word_at(block + 2) : 0,
                            value, out);
        break;
    }
    case DType::q4_1:
    case DType::q5_1: {
        const float d = detail::half_at(block);
        const float min = detail::half_at(block + 2);
        const bool is_five = dtype == DType::q5_1;
        const auto value = [=](int32_t code) { return d * detail::number(code) + min; };
        detail::load_halves(block + (is_five ? 8 : 4), is_five ? detail::word_at(block + 4) : 0,
                            value, out);
        break;
    }
    case DType::q8_0: {
        const float d = detail::half_at(block);
        for (int32_t i = 0; i < 32; ++i) {
            out[i] = d * detail::number(static_cast<int8_t>(block[2 + i]));
        }
        break;
    }
    case DType::q4_k:
        detail::load_k(block, block + 16, nullptr, out);
        break;
    case DType::q5_k:
        detail::load_k(block, block + 48, block + 16, out);
        break;
    case DType::q6_k:
        detail::load_q6_k(block, out);
        break;
    case DType::mxfp4_block: {
        // Twice the numbers under half the scale, so that code 8 is 0, not -0; and 0xFF is 2^128, not NaN.
        const uint32_t e = block[0];
        const float half = float_from_bits(e < 2 ? 0x00200000U << e : (e - 1) << 23);
        const auto value = [=](int32_t code) {
            const float number = 2.0F * e2m1_to_float(static_cast<uint8_t>(code));
            return half * detail::number(static_cast<int32_t>(number));
        };
        detail::load_halves(block + 1, 0, value, out);
        break;
    }
    default:
        break;
    }
}

// Elements [first, first + count) of an array, of blocks or of elements by themselves.
inline void load_floats(DType dtype, const void* data, int64_t first, int64_t count, float* out) {
    if (!is_in_blocks(dtype)) {
        for (int64_t i = 0; i < count; ++i) {
            out[i] = load_as_float(dtype, data, first + i);
        }
        return;
    }
    const TypeBlock block = type_block(dtype);
    float values[kMostBlockElements];
    for (int64_t done = 0; done < count;) {
        const int64_t at = first + done;
        const int64_t skip = at % block.elements;
        const int64_t n =
            block.elements - skip < count - done ? block.elements - skip : count - done;
        load_block(dtype, static_cast<const uint8_t*>(data) + at / block.elements * block.bytes,
                   values);
        for (int64_t i = 0; i < n; ++i) {
            out[done + i] = values[skip + i];
        }
        done += n;
    }
}

} // namespace mp::numerics
