// SPDX-License-Identifier: Apache-2.0
// The device of the reference backend: host memory by the caller's hooks, one thread, and queues on
// which everything is done when the call returns.
#pragma once

#include "interface/backend.hpp"

namespace mp::backends::reference {

class ReferenceQueue final : public Queue {
  public:
    Status sync() noexcept override { return {}; }
};

class ReferenceDevice final : public Device {
  public:
    explicit ReferenceDevice(const DeviceConfig& config) noexcept : memory_(config.memory) {}

    [[nodiscard]] DeviceKind kind() const noexcept override { return DeviceKind::host; }
    [[nodiscard]] int32_t index() const noexcept override { return 0; }
    void describe(char* buffer, std::size_t capacity) const noexcept override;
    [[nodiscard]] int32_t num_threads() const noexcept override { return 1; }

    Status allocate(std::size_t bytes, void** out) noexcept override;
    void release(void* pointer, std::size_t bytes) noexcept override;
    Status create_queue(void* native, Queue** out) noexcept override;
    Status copy(Queue& queue, void* destination, const void* source, std::size_t bytes,
                CopyKind kind) noexcept override;
    Status zero(Queue& queue, void* destination, std::size_t bytes) noexcept override;
    [[nodiscard]] CandidateList candidates(OpKind kind) const noexcept override;

  private:
    MemoryTable memory_;
};

} // namespace mp::backends::reference
