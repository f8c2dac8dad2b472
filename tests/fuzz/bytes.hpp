// SPDX-License-Identifier: Apache-2.0
// The bytes of an input as choices, one after another; zeros when they are used up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace mp::fuzz {

class Bytes {
  public:
    Bytes(const uint8_t* data, std::size_t size) : data_(data), size_(size) {}
    [[nodiscard]] bool empty() const noexcept { return at_ == size_; }
    std::size_t next() { return empty() ? 0 : data_[at_++]; }
    std::size_t below(std::size_t n) { return n == 0 ? 0 : next() % n; }
    // A place in so many bytes: three bytes choose it, or one near its begin or its end.
    std::size_t place(std::size_t n) {
        const std::size_t kind = next();
        if (n == 0 || kind % 4 == 0) {
            return below(n);
        }
        return kind % 4 == 1 ? n - 1 - below(n) : (next() << 16 | next() << 8 | next()) % n;
    }
    int64_t number() {
        constexpr int64_t kOdd[] = {0, 1, 2, -1, 16384, 16389, INT32_MAX, INT64_MAX, INT64_MIN};
        const std::size_t kind = next();
        return kind < std::size(kOdd) ? kOdd[kind] : static_cast<int64_t>(next() << (kind % 57));
    }

  private:
    const uint8_t* data_;
    std::size_t size_;
    std::size_t at_ = 0;
};

} // namespace mp::fuzz
