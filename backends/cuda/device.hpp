// SPDX-License-Identifier: Apache-2.0
// One NVIDIA GPU: memory, streams, copies, and the candidates for each operation. Everything works
// in the device's primary context and leaves the calling thread's current context as it was.
#pragma once

#include <cuda_runtime_api.h>
#include <mutex>

#include "cuda/capability.hpp"
#include "cuda/cublaslt.hpp"
#include "cuda/driver.hpp"
#include "cuda/gemm_shelf.hpp"
#include "cuda/staging.hpp"
#include "device/backend.hpp"

namespace mp::backends::cuda {

// Of one that there is. Makes no context.
Status summarize(int32_t index, DeviceSummary* out) noexcept;

class CudaDevice final : public Device {
  public:
    static Status open(const DeviceConfig& config, Device** out) noexcept;
    ~CudaDevice() override;

    [[nodiscard]] DeviceKind kind() const noexcept override { return DeviceKind::cuda; }
    [[nodiscard]] int32_t index() const noexcept override { return index_; }
    void describe(Properties& to) const noexcept override;
    [[nodiscard]] int32_t num_threads() const noexcept override { return 1; }

    // By cudaMalloc: memory here belongs to no stream, is used by any, and cudaFree waits for all work on the device, so a
    // buffer may be given back while work on it is pending. core keeps its scratch memory and its states, so neither call is
    // in a hot path.
    Status allocate(std::size_t bytes, void** out) noexcept override;
    void release(void* pointer, std::size_t bytes) noexcept override;
    // What is in a hot path: by the device's pool where it has one. cudaFree waits for nothing there.
    [[nodiscard]] bool orders_memory() const noexcept override { return has_pool_; }
    Status allocate_on(Queue& queue, std::size_t bytes, void** out) noexcept override;
    void release_on(Queue& queue, void* pointer, std::size_t bytes) noexcept override;
    void release_ordered(void* pointer, std::size_t bytes) noexcept override;

    Status create_queue(void* native, Queue** out) noexcept override;
    Status create_event(Event** out) noexcept override;
    Status copy(Queue& queue, void* destination, const void* source, std::size_t bytes,
                CopyKind kind) noexcept override;
    bool copy_waits(Queue& queue, const void* destination, const void* source, std::size_t bytes,
                    CopyKind kind) noexcept override;
    Status zero(Queue& queue, void* destination, std::size_t bytes) noexcept override;
    Status pin(void* host, std::size_t bytes) noexcept override;
    void unpin(void* host, std::size_t bytes) noexcept override;
    [[nodiscard]] CandidateList candidates(OpKind kind) const noexcept override;

    [[nodiscard]] CUcontext context() const noexcept { return context_; }
    [[nodiscard]] int32_t multiprocessor_count() const noexcept { return multiprocessor_count_; }
    [[nodiscard]] DeviceCapability capability() const noexcept override {
        return capability_of(compute_capability_);
    }
    // 10 x major + minor.
    [[nodiscard]] int32_t compute_capability() const noexcept { return compute_capability_; }

    // A line for the caller's log.
    void log(int32_t level, const char* message) const noexcept {
        log_.write(level, message, log_.payload);
    }

    // A cuBLASLt handle of this device, made at first use. Fails where there is no cuBLASLt.
    Status cublaslt_handle(cublasLtHandle_t* out) const noexcept;
    [[nodiscard]] GemmShelf& gemm_shelf() const noexcept { return gemm_shelf_; }

  private:
    explicit CudaDevice(const DeviceConfig& config) noexcept
        : index_(config.device_index), log_(config.log) {}
    Status initialize() noexcept;
    [[nodiscard]] Status allocated(cudaError_t error, std::size_t bytes, void** out) const noexcept;

    int32_t index_;
    LogTable log_;
    CUcontext context_ = nullptr;
    int32_t multiprocessor_count_ = 0;
    int32_t compute_capability_ = 0;
    std::size_t memory_bytes_ = 0;
    bool has_pool_ = false;
    char name_[256] = {};
    PinnedMemory pinned_;
    mutable std::mutex mutex_; // of the handle
    mutable cublasLtHandle_t cublaslt_handle_ = nullptr;
    mutable GemmShelf gemm_shelf_;
};

} // namespace mp::backends::cuda
