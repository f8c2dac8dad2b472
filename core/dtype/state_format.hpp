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
};

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
    constexpr StateFormat kScaled[] = {{DType::fp16, Coding::scaled},
                                       {DType::fp8_e4m3, Coding::scaled},
                                       {DType::fp8_e5m2, Coding::scaled}};
    for (const StateFormat format : kScaled) {
        if (text == format_name(format)) {
            return format;
        }
    }
    return parse_dtype(text);
}

// Bytes of so many numbers in one tensor, its scale included.
constexpr int64_t format_bytes(StateFormat format, int64_t count) {
    return bytes_of(format.dtype, count) + (format.is_scaled() ? int64_t{sizeof(float)} : 0);
}

} // namespace mp
