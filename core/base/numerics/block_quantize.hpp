// SPDX-License-Identifier: Apache-2.0
// fp32 numbers as codes of block types, of those whose quantizer is fixed by one formula: the bits of gguf-py 0.19.0
// (gguf.quants.quantize), operation by operation. A block whose scale is too small for 1 / scale has codes of 0, as there.
#pragma once

#include <cmath>
#include <cstdint>

#include "dtype/dtype.hpp"
#include "numerics/codec.hpp"

namespace mp::numerics {

namespace detail {

inline constexpr int32_t kStoredBlock = 32; // elements

inline void store_half(float value, uint8_t* bytes) {
    const uint16_t half = float_to_fp16(value);
    bytes[0] = static_cast<uint8_t>(half & 0xFF);
    bytes[1] = static_cast<uint8_t>(half >> 8);
}
inline float inverse(float scale) { return scale == 0.0F ? 0.0F : 1.0F / scale; }

// The first of the largest magnitude, with its sign.
inline float largest(const float* values) {
    float found = values[0];
    for (int32_t i = 1; i < kStoredBlock; ++i) {
        found = std::fabs(values[i]) > std::fabs(found) ? values[i] : found;
    }
    return found;
}
template <DType kDType> float block_scale(const float* values) {
    return kDType == DType::q8_0 ? std::fabs(largest(values)) / 127.0F : largest(values) / -8.0F;
}

// Half away from zero.
inline uint8_t q8_code(float scaled) {
    if (!std::isfinite(scaled)) {
        return 0;
    }
    const float magnitude = std::fabs(scaled);
    const float whole = std::floor(magnitude);
    const float rounded = whole + std::floor(2.0F * (magnitude - whole));
    return static_cast<uint8_t>(static_cast<int32_t>(scaled < 0.0F ? -rounded : rounded));
}
inline uint8_t q4_code(float scaled) {
    if (!std::isfinite(scaled)) {
        return 0;
    }
    const auto code = static_cast<int32_t>(scaled + 8.5F);
    return static_cast<uint8_t>(code < 15 ? code : 15);
}

template <DType kDType> void store_block(const float* values, uint8_t* block) {
    const float scale = block_scale<kDType>(values);
    const float inverse_scale = inverse(scale);
    store_half(scale, block);
    if constexpr (kDType == DType::q8_0) {
        for (int32_t i = 0; i < kStoredBlock; ++i) {
            block[2 + i] = q8_code(values[i] * inverse_scale);
        }
    } else { // the second 16 lie in the high halves
        for (int32_t i = 0; i < kStoredBlock / 2; ++i) {
            const uint32_t low = q4_code(values[i] * inverse_scale);
            const uint32_t high = q4_code(values[i + kStoredBlock / 2] * inverse_scale);
            block[2 + i] = static_cast<uint8_t>(low | high << 4);
        }
    }
}

} // namespace detail

// Types that numbers are stored as here.
inline constexpr bool stores_floats(DType dtype) {
    return is_high_precision(dtype) || dtype == DType::q8_0 || dtype == DType::q4_0;
}

// The first of `count` elements that begins a block whose numbers the type cannot hold: one is none, or the scale overflows fp16.
// -1: there is none. Types without blocks hold any number.
inline int64_t unstorable(DType dtype, const float* values, int64_t count) {
    if (!is_in_blocks(dtype)) {
        return -1;
    }
    for (int64_t i = 0; i < count; i += detail::kStoredBlock) {
        bool is_finite = true;
        for (int32_t k = 0; k < detail::kStoredBlock; ++k) {
            is_finite = is_finite && std::isfinite(values[i + k]);
        }
        const float scale = dtype == DType::q8_0 ? detail::block_scale<DType::q8_0>(values + i)
                                                 : detail::block_scale<DType::q4_0>(values + i);
        if (!is_finite || (float_to_fp16(scale) & 0x7FFF) == kFp16Infinity) {
            return i;
        }
    }
    return -1;
}

// As one of the types above, rounded to nearest; of blocks whole ones.
inline void store_floats(DType dtype, const float* values, int64_t count, void* data) {
    auto* bytes = static_cast<uint8_t*>(data);
    if (is_in_blocks(dtype)) {
        const int64_t block = type_block(dtype).bytes;
        for (int64_t i = 0; i < count; i += detail::kStoredBlock, bytes += block) {
            if (dtype == DType::q8_0) {
                detail::store_block<DType::q8_0>(values + i, bytes);
            } else {
                detail::store_block<DType::q4_0>(values + i, bytes);
            }
        }
        return;
    }
    visit_dtype(dtype, [&](auto type) {
        using C = Codec<type.value>;
        for (int64_t i = 0; i < count; ++i) {
            detail::store_element(data, i, C::store(values[i]));
        }
    });
}

} // namespace mp::numerics
