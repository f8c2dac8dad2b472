// SPDX-License-Identifier: Apache-2.0
#include "host/resources/scratch_pool.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "dtype/divide.hpp"
#include "host/resources/memory.hpp"

namespace mp::backends::host {

ScratchPool::~ScratchPool() {
    for (const Block& block : free_) {
        release_host(memory_, block.data, block.bytes);
    }
}

ScratchPool::Lease::Lease(Lease&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

ScratchPool::Lease& ScratchPool::Lease::operator=(Lease&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

ScratchPool::Lease::~Lease() {
    if (pool_ != nullptr) {
        pool_->give_back(data_, bytes_);
    }
}

// The smallest free block that fits. If none does, the largest free one goes back to its owner: the new
// block takes its place, so that slowly growing requests do not leave a trail of useless blocks.
bool ScratchPool::take_free(std::size_t bytes, Block& block) noexcept {
    const auto smaller = [](const Block& a, const Block& b) { return a.bytes < b.bytes; };
    const auto found = std::lower_bound(free_.begin(), free_.end(), Block{nullptr, bytes}, smaller);
    if (found != free_.end()) {
        block = *found;
        free_.erase(found);
        return true;
    }
    if (!free_.empty()) {
        const Block largest = free_.back();
        free_.pop_back();
        total_ -= largest.bytes;
        release_host(memory_, largest.data, largest.bytes);
    }
    return false;
}

Status ScratchPool::take(std::size_t bytes, Lease& out) noexcept {
    if (bytes == 0) {
        out = Lease();
        return {};
    }
    Block block{nullptr, 0};
    try {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!take_free(bytes, block)) {
            free_.reserve(free_.size() + lent_ + 1); // so that giving back never fails
            const std::size_t rounded = round_up(bytes, kScratchRounding);
            block = {allocate_host(memory_, rounded), rounded};
            if (block.data == nullptr) {
                return Status::error(Code::out_of_memory,
                                     "host: no memory for %zu bytes of scratch", bytes);
            }
            total_ += rounded;
        }
        ++lent_;
    } catch (const std::exception&) {
        return Status::error(Code::out_of_memory, "host: no memory for %zu bytes of scratch",
                             bytes);
    }
    Lease lease;
    lease.pool_ = this;
    lease.data_ = block.data;
    lease.bytes_ = block.bytes;
    out = std::move(lease);
    return {};
}

void ScratchPool::give_back(void* data, std::size_t bytes) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto larger = std::upper_bound(
        free_.begin(), free_.end(), bytes,
        [](std::size_t wanted, const Block& block) { return wanted < block.bytes; });
    free_.insert(larger, Block{data, bytes});
    --lent_;
}

std::size_t ScratchPool::bytes() const noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    return total_;
}

} // namespace mp::backends::host
