// SPDX-License-Identifier: Apache-2.0
// The device of the machine for blocks, by the names that the files of kernels know it by: memory() is the machine's, work is
// done when a call returns.
#pragma once

#include <cuda_runtime_api.h>

#include "device/backend.hpp"

namespace mp::backends::cuda {

class CudaDevice final : public Device {
  public:
    static Status open(const DeviceConfig& config, Device** out) noexcept;

    [[nodiscard]] DeviceKind kind() const noexcept override { return DeviceKind::cuda; }
    [[nodiscard]] int32_t index() const noexcept override { return 0; }
    void describe(Properties& to) const noexcept override;
    [[nodiscard]] int32_t num_threads() const noexcept override { return 1; }
    Status allocate(std::size_t bytes, void** out) noexcept override;
    void release(void* pointer, std::size_t bytes) noexcept override;
    Status create_queue(void* native, Queue** out) noexcept override;
    Status copy(Queue& queue, void* destination, const void* source, std::size_t bytes,
                CopyKind kind) noexcept override;
    Status zero(Queue& queue, void* destination, std::size_t bytes) noexcept override;
    [[nodiscard]] CandidateList candidates(OpKind kind) const noexcept override;

    // One: so grids are small, and threads take several turns of their loops.
    [[nodiscard]] int32_t multiprocessor_count() const noexcept { return 1; }
    [[nodiscard]] int context() const noexcept { return 0; }
};

class ContextGuard {
  public:
    explicit ContextGuard(int /*context*/) noexcept {}
    ~ContextGuard() {}
    ContextGuard(const ContextGuard&) = delete;
    ContextGuard& operator=(const ContextGuard&) = delete;
};

} // namespace mp::backends::cuda
