// SPDX-License-Identifier: Apache-2.0
// Arrays of any dtype in the test's own memory: their contents and their comparison.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "numerics/codec.hpp"
#include "numerics/philox.hpp"

namespace mp::test {

struct HostArray {
    HostArray() = default;
    HostArray(DType type, int64_t size)
        : dtype(type), count(size), bytes(static_cast<std::size_t>(size * dtype_size(type))) {}

    [[nodiscard]] float get(int64_t i) const {
        return numerics::load_as_float(dtype, bytes.data(), i);
    }
    // Rounds to nearest even, not saturating.
    void set(int64_t i, float x) { numerics::store_from_float(dtype, bytes.data(), i, x, false); }
    [[nodiscard]] uint32_t code(int64_t i) const {
        uint32_t value = 0;
        const std::size_t size = element_bytes();
        std::memcpy(&value, bytes.data() + static_cast<std::size_t>(i) * size, size);
        return value;
    }
    void set_code(int64_t i, uint32_t value) {
        const std::size_t size = element_bytes();
        std::memcpy(bytes.data() + static_cast<std::size_t>(i) * size, &value, size);
    }

    DType dtype = DType::none;
    int64_t count = 0;
    std::vector<unsigned char> bytes;

  private:
    // Of a floating type: at most those of a code.
    [[nodiscard]] std::size_t element_bytes() const {
        return std::min(static_cast<std::size_t>(dtype_size(dtype)), sizeof(uint32_t));
    }
};

// What an array holds. `patterns` are random codes: every NaN, infinity and subnormal of the type.
enum class Content { normal, small_integers, subnormal, patterns, specials, zeros };

inline constexpr std::array<Content, 5> kAllContents = {
    Content::normal, Content::subnormal, Content::patterns, Content::specials, Content::zeros};

inline const char* content_name(Content content) {
    switch (content) {
    case Content::normal:
        return "normal";
    case Content::small_integers:
        return "small integers";
    case Content::subnormal:
        return "subnormal";
    case Content::patterns:
        return "patterns";
    case Content::specials:
        return "specials";
    case Content::zeros:
        return "zeros";
    }
    return "";
}

namespace detail {

// Magnitudes from 2^-8 to 1, both signs.
inline float normal_value(uint64_t h) {
    const auto mantissa = static_cast<float>(static_cast<int64_t>(h >> 40) - (int64_t{1} << 23));
    return mantissa * numerics::exp2_int(-23 - static_cast<int32_t>((h >> 37) & 7U));
}

// Mostly ordinary numbers, with every kind of exception among them.
inline float special_value(uint64_t h) {
    const std::array<float, 8> odd = {0.0F,
                                      -0.0F,
                                      numerics::float_from_bits(numerics::kFloatInfinity),
                                      -numerics::float_from_bits(numerics::kFloatInfinity),
                                      numerics::float_from_bits(numerics::kFloatQuietNan),
                                      0x1.fffffep+127F,
                                      0x1p-149F,
                                      -0x1p-126F};
    return (h & 3U) == 0 ? odd[(h >> 2) & 7U] : normal_value(h);
}

inline void fill_element(HostArray& array, int64_t i, Content content, uint64_t h) {
    const int64_t bits = 8 * dtype_size(array.dtype);
    switch (content) {
    case Content::normal:
        array.set(i, normal_value(h));
        break;
    case Content::small_integers:
        array.set(i, static_cast<float>(static_cast<int32_t>(h % 9U) - 4));
        break;
    case Content::subnormal: {
        // A code below 2^6 is a subnormal of every type but the 8-bit ones, where only some are.
        const auto sign = static_cast<uint32_t>(h >> 63) << (bits - 1);
        array.set_code(i, sign | static_cast<uint32_t>(h & 63U));
        break;
    }
    case Content::patterns:
        array.set_code(i, static_cast<uint32_t>(h >> 7));
        break;
    case Content::specials:
        array.set(i, special_value(h));
        break;
    case Content::zeros:
        array.set_code(i, 0);
        break;
    }
}

inline bool is_nan_code(const HostArray& array, int64_t i) {
    return numerics::is_nan(array.get(i));
}

} // namespace detail

inline HostArray make_array(DType dtype, int64_t count, Content content, uint64_t seed) {
    HostArray array(dtype, count);
    for (int64_t i = 0; i < count; ++i) {
        const uint64_t h = numerics::splitmix64((seed << 40) + static_cast<uint64_t>(i));
        detail::fill_element(array, i, content, h);
    }
    return array;
}

// Conversions are integer code and promise the bits of a NaN too; arithmetic promises only that it is
// one, because which operand's payload comes through differs from processor to processor.
enum class NanRule { same_bits, any_nan };

// The first difference is shown, with the number of them.
inline ::testing::AssertionResult same_bits(const HostArray& expected, const HostArray& actual,
                                            NanRule rule) {
    if (expected.dtype != actual.dtype || expected.count != actual.count) {
        return ::testing::AssertionFailure() << "arrays of different type or size";
    }
    if (expected.bytes == actual.bytes) {
        return ::testing::AssertionSuccess();
    }
    int64_t differing = 0;
    int64_t first = -1;
    for (int64_t i = 0; i < expected.count; ++i) {
        const bool same = expected.code(i) == actual.code(i) ||
                          (rule == NanRule::any_nan && detail::is_nan_code(expected, i) &&
                           detail::is_nan_code(actual, i));
        differing += same ? 0 : 1;
        first = !same && first < 0 ? i : first;
    }
    if (differing == 0) {
        return ::testing::AssertionSuccess();
    }
    std::array<char, 160> text{};
    (void)std::snprintf(text.data(), text.size(),
                        "%lld of %lld differ, first [%lld]: expected %#x (%.9g), got %#x (%.9g)",
                        static_cast<long long>(differing), static_cast<long long>(expected.count),
                        static_cast<long long>(first), expected.code(first),
                        static_cast<double>(expected.get(first)), actual.code(first),
                        static_cast<double>(actual.get(first)));
    return ::testing::AssertionFailure() << text.data();
}

inline constexpr std::array<DType, 5> kFloatTypes = {DType::fp32, DType::fp16, DType::bf16,
                                                     DType::fp8_e4m3, DType::fp8_e5m2};
inline constexpr std::array<DType, 3> kWideTypes = {DType::fp32, DType::fp16, DType::bf16};

// Around every border a kernel may have: vector widths, pieces, chunks; and odd.
inline constexpr std::array<int64_t, 11> kSizes = {0,    1,     7,     255,   257,    4095,
                                                   4097, 16384, 16385, 65537, 1000003};
inline constexpr int64_t kLargestOfMany = 4097; // for combinations too many for the large sizes

} // namespace mp::test
