// SPDX-License-Identifier: Apache-2.0
// HostBytes: bytes in host memory that somebody else fills: a vector would write zeros first.
#pragma once

#include <memory>
#include <new>

#include "process/huge_pages.hpp"
#include "system/memory.hpp"

namespace mp::system {

class HostBytes {
  public:
    HostBytes() = default;
    // Throws std::bad_alloc.
    explicit HostBytes(std::size_t bytes)
        : memory_(default_memory().take(bytes, process::alignment_for(bytes)), Release{bytes}) {
        if (memory_ == nullptr && bytes > 0) {
            throw std::bad_alloc();
        }
        process::advise_huge_pages(memory_.get(), bytes);
    }

    [[nodiscard]] unsigned char* data() noexcept {
        return static_cast<unsigned char*>(memory_.get());
    }
    [[nodiscard]] const unsigned char* data() const noexcept {
        return static_cast<const unsigned char*>(memory_.get());
    }
    [[nodiscard]] std::size_t size() const noexcept {
        return memory_ != nullptr ? memory_.get_deleter().bytes : 0;
    }

  private:
    struct Release {
        std::size_t bytes = 0;
        void operator()(void* memory) const noexcept {
            default_memory().give_back(memory, bytes, process::alignment_for(bytes));
        }
    };
    std::unique_ptr<void, Release> memory_;
};

} // namespace mp::system
