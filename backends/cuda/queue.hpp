// SPDX-License-Identifier: Apache-2.0
// A CUDA stream, ours or the caller's, and what work on it needs: staging memory for copies, a Kokkos instance. Both are
// made when first asked for. Scratch memory is core's.
#pragma once

#include <atomic>
#include <cuda_runtime_api.h>
#include <mutex>

#include "cuda/driver.hpp"
#include "cuda/kokkos_space.hpp"
#include "cuda/staging.hpp"
#include "device/backend.hpp"

namespace mp::backends::cuda {

class CudaQueue final : public Queue {
  public:
    // `native` null: a stream of our own, which does not synchronize with the legacy default
    // stream. That one can be had as cudaStreamLegacy.
    static Status create(CUcontext context, void* native, CudaQueue** out) noexcept;
    ~CudaQueue() override;

    Status sync() noexcept override;
    [[nodiscard]] void* native() const noexcept override { return stream_; }

    // To put work into, which the queue's end waits for.
    [[nodiscard]] cudaStream_t stream() noexcept {
        has_work_.store(true, std::memory_order_relaxed);
        return stream_;
    }
    [[nodiscard]] StagingRing& staging() noexcept { return staging_; }

    Status capture(uint64_t* number) noexcept override;

    // An error of earlier work that has come out already; does not wait. Kokkos ends the process where
    // it meets one, so it is not called then.
    Status check_health() noexcept;

    // The Kokkos execution space on this stream. Kokkos clears what belongs to it on the legacy stream, with which a stream
    // of ours does not wait: that is over when this returns.
    Status kokkos_space(KokkosSpace** out) noexcept;

  private:
    CudaQueue(CUcontext context, cudaStream_t stream, bool is_owned) noexcept
        : context_(context), stream_(stream), is_owned_(is_owned) {}

    CUcontext context_;
    cudaStream_t stream_;
    bool is_owned_;
    std::atomic<bool> has_work_{false}; // ever, but events
    StagingRing staging_;
    std::mutex mutex_; // of what follows
    KokkosSpace* kokkos_space_ = nullptr;
    bool is_kokkos_ready_ = false;
};

// Scratch memory of a queue for a scope: work that is enqueued meanwhile may use it.
class ScratchMemory {
  public:
    explicit ScratchMemory(Queue& queue) noexcept : source_(queue.scratch()) {}
    ~ScratchMemory() {
        if (data_ != nullptr) {
            source_->give(data_);
        }
    }
    ScratchMemory(const ScratchMemory&) = delete;
    ScratchMemory& operator=(const ScratchMemory&) = delete;

    // Once. No bytes: null.
    Status take(std::size_t bytes) noexcept {
        return bytes == 0 ? Status() : source_->take(bytes, &data_);
    }
    [[nodiscard]] void* data() const noexcept { return data_; }

  private:
    ScratchSource* source_;
    void* data_ = nullptr;
};

} // namespace mp::backends::cuda
