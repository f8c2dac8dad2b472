// SPDX-License-Identifier: Apache-2.0
// FNV-1a, 64 bits: names things by their contents. Not for use against an adversary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace mp {

class Fnv64 {
  public:
    void add_bytes(const void* data, std::size_t size) noexcept {
        const auto* bytes = static_cast<const unsigned char*>(data);
        for (std::size_t i = 0; i < size; ++i) {
            value_ = (value_ ^ bytes[i]) * 0x100000001b3ULL;
        }
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

} // namespace mp
