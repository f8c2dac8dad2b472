// SPDX-License-Identifier: Apache-2.0
// A CUDA stream, ours or the caller's, and what work on it needs: staging memory for copies, a
// workspace for cuBLASLt, a Kokkos instance. All three are made when first asked for.
#pragma once

#include <cuda_runtime_api.h>
#include <mutex>
#include <vector>

#include "cuda/driver.hpp"
#include "cuda/kokkos_space.hpp"
#include "cuda/staging.hpp"
#include "interface/backend.hpp"

namespace mp::backends::cuda {

class CudaQueue final : public Queue {
  public:
    // `native` null: a stream of our own, which does not synchronize with the legacy default
    // stream. That one can be had as cudaStreamLegacy.
    static Status create(CUcontext context, void* native, CudaQueue** out) noexcept;
    ~CudaQueue() override;

    Status sync() noexcept override;
    [[nodiscard]] void* native() const noexcept override { return stream_; }

    [[nodiscard]] cudaStream_t stream() const noexcept { return stream_; }
    [[nodiscard]] StagingRing& staging() noexcept { return staging_; }

    // What a captured graph would keep for every replay, or what a capture forbids: bad_state while the stream is being
    // captured. `what` begins a sentence: "an upload".
    Status refuse_capture(const char* what) noexcept;

    // kWorkspaceBytes of device memory that work on this stream may use in its turn. Per stream,
    // not per plan: work on one stream never overlaps, and a model has hundreds of plans.
    Status workspace(void** out) noexcept;
    // What cuBLAS itself takes on Hopper.
    static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

    // Device memory for work on this stream, at least so many bytes, aligned to 256. What is enqueued while the
    // lock lives finds there what the same user left; nobody else enqueues work on it then. Two of them: who holds
    // `operands` may call who takes `arranged`.
    enum class Scratch { arranged, operands };
    Status scratch(Scratch which, std::size_t bytes, std::unique_lock<std::mutex>& lock,
                   void** out) noexcept;

    // An error of earlier work that has come out already; does not wait. Kokkos ends the process where
    // it meets one, so it is not called then.
    Status check_health() noexcept;

    // The Kokkos execution space on this stream. Kokkos clears what belongs to it on the legacy stream, with which a stream
    // of ours does not wait: that is over when this returns.
    Status kokkos_space(KokkosSpace** out) noexcept;

  private:
    CudaQueue(CUcontext context, cudaStream_t stream, bool is_owned) noexcept
        : context_(context), stream_(stream), is_owned_(is_owned) {}

    struct Memory;
    Status give_up(Memory& memory) noexcept;

    CUcontext context_;
    cudaStream_t stream_;
    bool is_owned_;
    StagingRing staging_;
    std::mutex mutex_; // of what follows
    void* workspace_ = nullptr;
    KokkosSpace* kokkos_space_ = nullptr;
    bool is_kokkos_ready_ = false;
    struct Memory {
        std::mutex mutex;
        void* pointer = nullptr;
        std::size_t bytes = 0;
        bool is_captured = false; // a graph may use it as long as the queue lives
        std::vector<void*> outgrown;
    };
    Memory scratch_[2];
};

} // namespace mp::backends::cuda
