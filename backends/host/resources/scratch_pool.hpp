// SPDX-License-Identifier: Apache-2.0
// Scratch memory that operations borrow while they run: blocks are kept and lent again, so a training loop
// allocates only in its first step.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "device/backend.hpp"

namespace mp::backends::host {

// Sizes are rounded up to this, so that similar requests share blocks.
inline constexpr std::size_t kScratchRounding = 4096;

class ScratchPool {
  public:
    explicit ScratchPool(const MemoryTable& memory) noexcept : memory_(memory) {}
    ScratchPool(const ScratchPool&) = delete;
    ScratchPool& operator=(const ScratchPool&) = delete;
    ~ScratchPool();

    // A borrowed block, aligned as allocate_host() does; given back by the destructor. Any thread.
    class Lease {
      public:
        Lease() = default;
        Lease(Lease&& other) noexcept;
        Lease& operator=(Lease&& other) noexcept;
        ~Lease();
        [[nodiscard]] void* data() const noexcept { return data_; }

      private:
        friend class ScratchPool;
        ScratchPool* pool_ = nullptr;
        void* data_ = nullptr;
        std::size_t bytes_ = 0;
    };

    // At least `bytes`; zero bytes are a null pointer.
    Status take(std::size_t bytes, Lease& out) noexcept;

    // What the pool holds now, lent or not.
    [[nodiscard]] std::size_t bytes() const noexcept;

  private:
    struct Block {
        void* data;
        std::size_t bytes;
    };
    void give_back(void* data, std::size_t bytes) noexcept;
    bool take_free(std::size_t bytes, Block& block) noexcept;

    MemoryTable memory_;
    mutable std::mutex mutex_;
    std::vector<Block> free_;
    std::size_t total_ = 0;
    std::size_t lent_ = 0; // blocks
};

} // namespace mp::backends::host
