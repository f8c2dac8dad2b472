// SPDX-License-Identifier: Apache-2.0
// What the tests of the compiled chunk bodies share: the tables this machine can run, and arrays at
// any address between guards.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "../backends/arrays.hpp"
#include "host/kernels/isa.hpp"

namespace mp::test {

using backends::host::IsaTable;
using backends::host::kColumnStrip;
using backends::host::UpdateJob;

inline std::vector<const IsaTable*> runnable_tables() {
    const backends::host::IsaList list = backends::host::runnable_isas();
    return {list.items, list.items + list.count};
}

// Parameterized by the table.
class TableTest : public ::testing::TestWithParam<const IsaTable*> {};

inline std::string table_label(const ::testing::TestParamInfo<const IsaTable*>& info) {
    return info.param->name;
}

#define MP_FOR_EVERY_TABLE(fixture)                                                                \
    INSTANTIATE_TEST_SUITE_P(Isa, fixture, ::testing::ValuesIn(runnable_tables()), table_label)

// An array's bytes, `offset` bytes past a cache line, with guards before and after.
class PlacedBytes {
  public:
    PlacedBytes(const std::vector<unsigned char>& content, std::size_t offset)
        : size_(content.size()), storage_(content.size() + 4 * kLine, kGuard) {
        const auto address = reinterpret_cast<uintptr_t>(storage_.data());
        const std::size_t to_line = (kLine - address % kLine) % kLine;
        first_ = kLine + to_line + offset;
        std::copy(content.begin(), content.end(),
                  storage_.begin() + static_cast<std::ptrdiff_t>(first_));
    }
    [[nodiscard]] unsigned char* data() { return storage_.data() + first_; }
    // Fails the test if something beside the array was written.
    [[nodiscard]] std::vector<unsigned char> content() const {
        for (std::size_t i = 0; i < storage_.size(); ++i) {
            const bool inside = i >= first_ && i < first_ + size_;
            if (!inside && storage_[i] != kGuard) {
                ADD_FAILURE() << "a byte beside an array was written, at offset "
                              << static_cast<std::ptrdiff_t>(i) -
                                     static_cast<std::ptrdiff_t>(first_);
                break;
            }
        }
        const auto begin = storage_.begin() + static_cast<std::ptrdiff_t>(first_);
        return {begin, begin + static_cast<std::ptrdiff_t>(size_)};
    }

  private:
    static constexpr std::size_t kLine = 64;
    static constexpr unsigned char kGuard = 0x5a;

    std::size_t size_;
    std::vector<unsigned char> storage_;
    std::size_t first_ = 0;
};

// A placed HostArray.
class Placed {
  public:
    Placed(const HostArray& array, std::size_t offset)
        : bytes_(array.bytes, offset), dtype_(array.dtype), count_(array.count) {}
    [[nodiscard]] void* data() { return count_ > 0 ? bytes_.data() : nullptr; }
    [[nodiscard]] TensorRef ref() { return {bytes_.data(), count_, dtype_}; }
    [[nodiscard]] HostArray array() const {
        HostArray result(dtype_, count_);
        result.bytes = bytes_.content();
        return result;
    }

  private:
    PlacedBytes bytes_;
    DType dtype_;
    int64_t count_;
};

// Around every border a body has: vectors, tiles of 256, pieces, chunks.
inline constexpr std::array<int64_t, 11> kOddSizes = {1,    7,    15,    255,   256,  257,
                                                      4095, 4097, 16383, 16384, 16385};
// A line, an element off a line, and no alignment at all.
inline constexpr std::array<std::size_t, 4> kOffsets = {0, 4, 2, 1};

} // namespace mp::test
