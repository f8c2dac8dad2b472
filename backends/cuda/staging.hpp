// SPDX-License-Identifier: Apache-2.0
// Copies from the host that leave the caller's memory free at return.
//
// cudaMemcpyAsync alone does not promise that: from pinned memory it returns at once, and from
// pageable memory too on systems whose devices read it directly (CUDA programming guide, "API
// synchronization behavior"). So small copies go through pinned buffers of our own, one behind the
// other, and do not wait for the stream unless all of these are full of pending ones; larger ones
// wait until the stream has done them. Memory that core pinned needs neither: core waits before it
// uses it again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <map>
#include <mutex>

#include "status/status.hpp"

namespace mp::backends::cuda {

class StagingRing {
  public:
    StagingRing() = default;
    StagingRing(const StagingRing&) = delete;
    StagingRing& operator=(const StagingRing&) = delete;
    ~StagingRing() = default;

    // Gives everything back. The stream must be idle, and the device's context current; not in a
    // destructor, which would run when the owner no longer sees to that.
    void close() noexcept;

    // From any thread. The device's context is current.
    Status copy(cudaStream_t stream, void* destination, const void* source,
                std::size_t bytes) noexcept;
    // Whether copy() would wait for earlier work now.
    bool waits_for(std::size_t bytes) noexcept;

  private:
    static constexpr int32_t kBuffers = 8;
    static constexpr std::size_t kBufferBytes = std::size_t{64} << 10;

    Status make_ready() noexcept;
    // Whether the buffer that is next but so many may not be filled yet.
    [[nodiscard]] bool is_in_use(int32_t offset) const noexcept;
    Status copy_through_buffer(cudaStream_t stream, void* destination, const void* source,
                               std::size_t bytes, std::size_t* part) noexcept;

    std::mutex mutex_;
    unsigned char* buffers_ = nullptr;
    cudaEvent_t copied_[kBuffers] = {}; // reached when the buffer may be filled again
    int32_t next_ = 0;
    std::size_t used_ = 0; // bytes of that one, which small copies share
};

// The host memory that one device pinned. What the program pinned is not in here: nobody knows when it is used again.
class PinnedMemory {
  public:
    // From any thread. The device's context is current.
    Status pin(void* host, std::size_t bytes) noexcept;
    void unpin(void* host) noexcept;
    [[nodiscard]] bool holds(const void* host, std::size_t bytes) const noexcept;

  private:
    mutable std::mutex mutex_;
    std::map<uintptr_t, std::size_t> sizes_; // by address
};

} // namespace mp::backends::cuda
