// SPDX-License-Identifier: Apache-2.0
// A CUDA stream, ours or the caller's, and what work on it needs: staging memory for copies, a
// workspace for cuBLASLt, a Kokkos instance. All three are made when first asked for.
#pragma once

#include <cuda_runtime_api.h>
#include <mutex>

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

    // kWorkspaceBytes of device memory that work on this stream may use in its turn. Per stream,
    // not per plan: work on one stream never overlaps, and a model has hundreds of plans.
    Status workspace(void** out) noexcept;
    // What cuBLAS itself takes on Hopper.
    static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

    // Device memory for work on this stream, at least so many bytes, aligned to 256. What is enqueued while the
    // lock lives finds there what the same user left; nobody else enqueues work on it then.
    Status scratch(std::size_t bytes, std::unique_lock<std::mutex>& lock, void** out) noexcept;

    // An error of earlier work that has come out already; does not wait. Kokkos ends the process where
    // it meets one, so it is not called then.
    Status check_health() noexcept;

    // The Kokkos execution space on this stream.
    Status kokkos_space(KokkosSpace** out) noexcept;

  private:
    CudaQueue(CUcontext context, cudaStream_t stream, bool is_owned) noexcept
        : context_(context), stream_(stream), is_owned_(is_owned) {}

    CUcontext context_;
    cudaStream_t stream_;
    bool is_owned_;
    StagingRing staging_;
    std::mutex mutex_; // of what follows
    void* workspace_ = nullptr;
    KokkosSpace* kokkos_space_ = nullptr;
    std::mutex scratch_mutex_; // of what follows
    void* scratch_ = nullptr;
    std::size_t scratch_bytes_ = 0;
};

} // namespace mp::backends::cuda
