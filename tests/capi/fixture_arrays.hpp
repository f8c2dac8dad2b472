// SPDX-License-Identifier: Apache-2.0
// The arrays of the fixtures layers and msamp.
#pragma once

#include <cmath>
#include <map>

#include "fixture_file.hpp"
#include "support.hpp"

namespace mp_test {

inline constexpr int32_t kFp64 = -64; // no type of the library's

struct Array {
    int32_t dtype = MP_DTYPE_NONE;
    int64_t rows = 0;
    int64_t columns = 0;
    std::vector<unsigned char> bytes;

    [[nodiscard]] double at(int64_t row, int64_t column) const;
};

// A number of a small format, which has no special values in the fixtures.
inline double small_float(uint32_t code, int mantissa_bits, int exponent_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const auto mantissa = static_cast<int>(code & ((1U << mantissa_bits) - 1));
    const auto exponent = static_cast<int>(code >> mantissa_bits & ((1U << exponent_bits) - 1));
    const bool is_normal = exponent != 0;
    const int whole = mantissa + (is_normal ? 1 << mantissa_bits : 0);
    const double magnitude = std::ldexp(whole, std::max(exponent, 1) - bias - mantissa_bits);
    return (code >> (mantissa_bits + exponent_bits) & 1U) != 0 ? -magnitude : magnitude;
}

template <typename T> T element(const std::vector<unsigned char>& bytes, std::size_t index) {
    T value;
    std::memcpy(&value, &bytes[index * sizeof value], sizeof value);
    return value;
}

inline double Array::at(int64_t row, int64_t column) const {
    const auto index = static_cast<std::size_t>(row * columns + column);
    switch (dtype) {
    case kFp64:
        return element<double>(bytes, index);
    case MP_DTYPE_FP32:
        return static_cast<double>(element<float>(bytes, index));
    case MP_DTYPE_BF16:
        return small_float(element<uint16_t>(bytes, index), 7, 8);
    case MP_DTYPE_FP8_E4M3:
        return small_float(bytes[index], 3, 4);
    case MP_DTYPE_FP8_E5M2:
        return small_float(bytes[index], 2, 5);
    default: // E8M0
        return std::ldexp(1.0, bytes[index] - 127);
    }
}

// How many bytes differ, and the first of them.
inline std::string difference(const std::vector<unsigned char>& ours,
                              const std::vector<unsigned char>& theirs) {
    if (ours.size() != theirs.size()) {
        return std::to_string(ours.size()) + " bytes, not " + std::to_string(theirs.size());
    }
    std::size_t count = 0, first = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) {
        if (ours[i] != theirs[i]) {
            first = count++ == 0 ? i : first;
        }
    }
    return count == 0 ? ""
                      : std::to_string(count) + " bytes of " + std::to_string(ours.size()) +
                            ", the first is " + std::to_string(first) + ": " +
                            std::to_string(ours[first]) + ", not " + std::to_string(theirs[first]);
}

// A vector is one row. Bytes are two codes of fp4_e2m1 each, in as many columns.
inline Array array_in(const FixtureFile& file, const std::string& name) {
    static const std::map<std::string, int32_t> kTypes = {{"fp64", kFp64},
                                                          {"fp32", MP_DTYPE_FP32},
                                                          {"fp16", MP_DTYPE_FP16},
                                                          {"bf16", MP_DTYPE_BF16},
                                                          {"fp8_e4m3", MP_DTYPE_FP8_E4M3},
                                                          {"fp8_e5m2", MP_DTYPE_FP8_E5M2},
                                                          {"uint8", MP_DTYPE_FP4_E2M1},
                                                          {"e8m0", MP_DTYPE_E8M0}};
    const FixtureArray& stored = file.array(name);
    return {kTypes.at(stored.dtype), stored.shape.size() == 1 ? 1 : stored.shape.at(0),
            stored.shape.back(), stored.bytes};
}

} // namespace mp_test
