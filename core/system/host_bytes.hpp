// SPDX-License-Identifier: Apache-2.0
// HostBytes: bytes in host memory that somebody else fills: a vector would write zeros first.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "process/huge_pages.hpp"

namespace mp::system {

class HostBytes {
  public:
    HostBytes() = default;
    // Throws std::bad_alloc.
    explicit HostBytes(std::size_t bytes) : size_(bytes) {
        const std::size_t unit = bytes >= process::kHugePage ? process::kHugePage : kCacheLine;
        if (bytes > SIZE_MAX - unit) {
            throw std::bad_alloc();
        }
        if (bytes > 0) {
            memory_.reset(std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit));
            if (memory_ == nullptr) {
                throw std::bad_alloc();
            }
            process::advise_huge_pages(memory_.get(), bytes);
        }
    }

    [[nodiscard]] unsigned char* data() noexcept {
        return static_cast<unsigned char*>(memory_.get());
    }
    [[nodiscard]] const unsigned char* data() const noexcept {
        return static_cast<const unsigned char*>(memory_.get());
    }
    [[nodiscard]] std::size_t size() const noexcept { return memory_ != nullptr ? size_ : 0; }

  private:
    static constexpr std::size_t kCacheLine = 64;
    struct Free {
        void operator()(void* memory) const noexcept { std::free(memory); }
    };
    std::unique_ptr<void, Free> memory_;
    std::size_t size_ = 0;
};

} // namespace mp::system
