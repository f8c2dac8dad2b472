// SPDX-License-Identifier: Apache-2.0
// FNV-1a, 64 bits: names things by their contents. Not for use against an adversary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace mp::system {

class Fnv64 {
  public:
    void add_bytes(const void* data, std::size_t size) noexcept {
        const auto* bytes = static_cast<const unsigned char*>(data);
        for (std::size_t i = 0; i < size; ++i) {
            value_ = (value_ ^ bytes[i]) * 0x100000001b3ULL;
        }
    }
    // Eight bytes at a time, for large contents; not the same hash.
    void add_words(const void* data, std::size_t size) noexcept {
        const auto* bytes = static_cast<const unsigned char*>(data);
        std::size_t i = 0;
        for (; i + sizeof(uint64_t) <= size; i += sizeof(uint64_t)) {
            uint64_t word = 0;
            std::memcpy(&word, bytes + i, sizeof word);
            value_ = (value_ ^ word) * 0x100000001b3ULL;
            value_ ^= value_ >> 29; // the high bits must reach the low ones, too
        }
        add_bytes(bytes + i, size - i);
    }
    void add(std::string_view text) noexcept { add_bytes(text.data(), text.size()); }
    // The low byte first on every machine.
    template <typename T>
    requires std::is_integral_v<T> || std::is_enum_v<T>
    void add(T number) noexcept {
        auto bits = static_cast<uint64_t>(number);
        for (int i = 0; i < 8; ++i, bits >>= 8) {
            const auto byte = static_cast<unsigned char>(bits & 0xff);
            add_bytes(&byte, 1);
        }
    }
    [[nodiscard]] uint64_t value() const noexcept { return value_; }

  private:
    uint64_t value_ = 0xcbf29ce484222325ULL;
};

} // namespace mp::system
