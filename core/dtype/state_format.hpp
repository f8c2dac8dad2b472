// SPDX-License-Identifier: Apache-2.0
// StateFormat: how weights, gradients and optimizer states are kept: an element type, and how its codes
// become numbers.
#pragma once

#include <cstdint>
#include <string_view>

#include "dtype/dtype.hpp"

namespace mp {

enum class Coding : int32_t {
    plain = 0,  // the number itself
    scaled = 1, // code * scale_inv, one power-of-two scale for the tensor (MS-AMP)
    // Moments only, see numerics/block_state.hpp: a scale for each block of the flattened tensor.
    block = 2,    // fp8_e4m3, 256 elements
    dynamic8 = 3, // uint8, 256 elements
    dynamic4 = 4, // uint8 with two codes each, 128 elements
    // A master weight beside a bf16 parameter: int16, see numerics/remainder.hpp.
    remainder = 5,
};

MP_HD_INLINE constexpr bool has_blocks(Coding coding) {
    return coding == Coding::block || coding == Coding::dynamic8 || coding == Coding::dynamic4;
}
MP_HD_INLINE constexpr int64_t block_size(Coding coding) {
    return coding == Coding::dynamic4 ? 128 : 256;
}
// Where the codes of element i begin, a multiple of the block size; or bytes of i elements.
MP_HD_INLINE constexpr int64_t code_bytes(Coding coding, DType dtype, int64_t i) {
    return coding == Coding::dynamic4 ? (i + 1) / 2 : i * dtype_size(dtype);
}

// Tensors of fewer elements keep fp32 moments where the recipe asks for blocks, as in torchao.
inline constexpr int64_t kSmallestBlockTensor = 4096;

struct StateFormat {
    DType dtype = DType::none;
    Coding coding = Coding::plain;

    constexpr StateFormat() = default;
    // NOLINTNEXTLINE(google-explicit-constructor): a plain type is a format
    constexpr StateFormat(DType type, Coding how = Coding::plain) : dtype(type), coding(how) {}

    [[nodiscard]] constexpr bool exists() const { return dtype != DType::none; }
    [[nodiscard]] constexpr bool is_scaled() const { return coding == Coding::scaled; }
    constexpr bool operator==(const StateFormat&) const = default;
};

// "bf16", "fp8_e4m3_scaled", "none". Static storage.
constexpr const char* format_name(StateFormat format) {
    if (format.coding == Coding::plain) {
        return dtype_name(format.dtype);
    }
    switch (format.coding) {
    case Coding::block:
        return "fp8_e4m3_block256";
    case Coding::dynamic8:
        return "int8_block256";
    case Coding::dynamic4:
        return "int4_block128";
    case Coding::remainder:
        return "remainder16";
    default:
        break;
    }
    switch (format.dtype) {
    case DType::fp16:
        return "fp16_scaled";
    case DType::fp8_e4m3:
        return "fp8_e4m3_scaled";
    case DType::fp8_e5m2:
        return "fp8_e5m2_scaled";
    default:
        return "none";
    }
}

// The inverse of format_name; a format of type `none` for an unknown name.
constexpr StateFormat parse_format(std::string_view text) {
    constexpr StateFormat kCoded[] = {
        {DType::fp16, Coding::scaled},     {DType::fp8_e4m3, Coding::scaled},
        {DType::fp8_e5m2, Coding::scaled}, {DType::fp8_e4m3, Coding::block},
        {DType::uint8, Coding::dynamic8},  {DType::uint8, Coding::dynamic4},
        {DType::int16, Coding::remainder}};
    for (const StateFormat format : kCoded) {
        if (text == format_name(format)) {
            return format;
        }
    }
    return parse_dtype(text);
}

// What a moment of so many elements is really kept in.
constexpr StateFormat moment_format(StateFormat format, int64_t count) {
    return has_blocks(format.coding) && count < kSmallestBlockTensor ? StateFormat(DType::fp32)
                                                                     : format;
}

constexpr int64_t scale_count(StateFormat format, int64_t count) {
    if (has_blocks(format.coding)) {
        return (count + block_size(format.coding) - 1) / block_size(format.coding);
    }
    return format.is_scaled() ? 1 : 0;
}

// Bytes of so many numbers in one tensor, its scales included.
constexpr int64_t format_bytes(StateFormat format, int64_t count) {
    return code_bytes(format.coding, format.dtype, count) +
           int64_t{sizeof(float)} * scale_count(format, count);
}

} // namespace mp
