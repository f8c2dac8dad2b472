// SPDX-License-Identifier: Apache-2.0
// Matrices of codes for tests of products and layers, whose numbers are few bits of a power of two: every sum is exact.
#pragma once

#include <cmath>

#include "support.hpp"

namespace mp_test::coded {

struct Blocks {
    int32_t dtype;
    int64_t elements;
    int64_t bytes;
    std::vector<std::size_t> halves; // where fp16 scales are; empty: one byte of E8M0 is first
};
inline const std::vector<Blocks>& block_types() {
    static const std::vector<Blocks> list = {
        {MP_DTYPE_Q4_0, 32, 18, {0}},      {MP_DTYPE_Q4_1, 32, 20, {0, 2}},
        {MP_DTYPE_Q5_0, 32, 22, {0}},      {MP_DTYPE_Q5_1, 32, 24, {0, 2}},
        {MP_DTYPE_Q8_0, 32, 34, {0}},      {MP_DTYPE_Q4_K, 256, 144, {0, 2}},
        {MP_DTYPE_Q5_K, 256, 176, {0, 2}}, {MP_DTYPE_Q6_K, 256, 210, {208}},
        {MP_DTYPE_MXFP4_BLOCK, 32, 17, {}}};
    return list;
}

// Random codes, all scales of blocks 2^-4.
inline std::vector<unsigned char> codes_of(const Blocks& type, int64_t rows, int64_t columns,
                                           uint64_t seed) {
    const auto count = static_cast<std::size_t>(rows * columns / type.elements);
    const auto size = static_cast<std::size_t>(type.bytes);
    const std::vector<float> random = numbers(count * size, seed);
    std::vector<unsigned char> bytes(count * size);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<unsigned char>(std::lround((random[i] + 1.0F) * 1000.0F) & 0xFF);
    }
    for (std::size_t block = 0; block < count; ++block) {
        for (const std::size_t at : type.halves) {
            bytes[block * size + at] = 0x00;
            bytes[block * size + at + 1] = 0x2C;
        }
        if (type.halves.empty()) {
            bytes[block * size] = 127 - 4;
        }
    }
    return bytes;
}

inline Tensor make_blocks(mp_context* context, const Blocks& type, int64_t rows, int64_t columns,
                          uint64_t seed) {
    Tensor made = make_tensor(context, type.dtype, {rows, columns});
    const auto bytes = codes_of(type, rows, columns, seed);
    EXPECT_TRUE(succeeded(mp_tensor_write(made, nullptr, bytes.data(), bytes.size())));
    return made;
}

// Small integers, so that products are exact.
inline std::vector<float> integers(int64_t count, uint64_t seed) {
    std::vector<float> values = numbers(static_cast<std::size_t>(count), seed);
    for (float& value : values) {
        value = std::floor(value * 3.0F);
    }
    return values;
}

// What the codes are worth, rounded to a type.
inline Tensor numbers_of(mp_context* context, mp_tensor* codes, int32_t dtype, int64_t rows,
                         int64_t columns) {
    Tensor made = make_tensor(context, dtype, {rows, columns});
    EXPECT_TRUE(succeeded(mp_tensor_dequantize(codes, nullptr, made)));
    return made;
}

} // namespace mp_test::coded
