// SPDX-License-Identifier: Apache-2.0
// The arrays of tests/fixtures/layers and .../msamp: an index of lines, and a file that holds their bytes.
#pragma once

#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>

#include "fixture_path.hpp"
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

class ArrayFile {
  public:
    // `read` is called with each line that is no comment: its first word, and what follows.
    template <typename Read> void read(const std::string& name, const Read& read) {
        const std::string folder = fixture_path(name + "/");
        std::ifstream data(folder + name + ".bin", std::ios::binary);
        std::ifstream index(folder + "index.txt");
        if (!data || !index) {
            throw std::runtime_error("cannot open the fixture in " + folder);
        }
        data_.assign(std::istreambuf_iterator<char>(data), {});
        for (std::string line; std::getline(index, line);) {
            std::istringstream words(line);
            std::string kind;
            words >> kind;
            if (kind != "#") {
                read(kind, words);
            }
        }
    }

    // Of the next words: dtype, rows, columns, offset.
    [[nodiscard]] Array array(std::istringstream& words) const {
        static const std::map<std::string, std::pair<int32_t, std::size_t>> kTypes = {
            {"fp64", {kFp64, 8}},
            {"fp32", {MP_DTYPE_FP32, 4}},
            {"fp16", {MP_DTYPE_FP16, 2}},
            {"bf16", {MP_DTYPE_BF16, 2}},
            {"fp8_e4m3", {MP_DTYPE_FP8_E4M3, 1}},
            {"fp8_e5m2", {MP_DTYPE_FP8_E5M2, 1}},
            {"fp4_e2m1", {MP_DTYPE_FP4_E2M1, 1}}, // two to a byte, and so many columns
            {"e8m0", {MP_DTYPE_E8M0, 1}},
            {"none", {MP_DTYPE_NONE, 0}}};
        std::string type;
        Array read;
        std::size_t offset = 0;
        words >> type >> read.rows >> read.columns >> offset;
        const auto [dtype, size] = kTypes.at(type);
        read.dtype = dtype;
        const std::size_t bytes = static_cast<std::size_t>(read.rows * read.columns) * size;
        if (offset + bytes > data_.size()) {
            throw std::runtime_error("the fixture is cut short");
        }
        const auto begin = data_.begin() + static_cast<std::ptrdiff_t>(offset);
        read.bytes.assign(begin, begin + static_cast<std::ptrdiff_t>(bytes));
        return read;
    }

  private:
    std::vector<unsigned char> data_;
};

} // namespace mp_test
