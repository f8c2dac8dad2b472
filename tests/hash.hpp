// SPDX-License-Identifier: Apache-2.0
// FNV-1a, 64 bits, for tests that tell contents apart. Not the library's own (core/system/fnv.hpp): that is what is tested.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mp::test {

class Fnv1a {
  public:
    // A byte, or a larger number at once.
    void add(uint64_t number) noexcept { value_ = (value_ ^ number) * 0x100000001b3ULL; }
    void add_bytes(const void* data, std::size_t size) noexcept {
        for (std::size_t i = 0; i < size; ++i) {
            add(static_cast<const unsigned char*>(data)[i]);
        }
    }
    [[nodiscard]] uint64_t value() const noexcept { return value_; }

  private:
    uint64_t value_ = 0xcbf29ce484222325ULL;
};

} // namespace mp::test
