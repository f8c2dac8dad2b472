// SPDX-License-Identifier: Apache-2.0
// The CPU as a device: memory from the caller's hooks, work done in the calling thread and its OpenMP team.
#pragma once

#include <cstdint>
#include <vector>

#include "interface/backend.hpp"
#include "topology/topology.hpp"

namespace mp::backends::host {

class HostQueue final : public Queue {
  public:
    // Work is done when the call that enqueues it returns.
    Status sync() noexcept override { return {}; }
};

class HostDevice final : public Device {
  public:
    explicit HostDevice(const DeviceConfig& config);

    [[nodiscard]] DeviceKind kind() const noexcept override { return DeviceKind::host; }
    [[nodiscard]] int32_t index() const noexcept override { return 0; }
    void describe(char* buffer, std::size_t capacity) const noexcept override;
    [[nodiscard]] int32_t num_threads() const noexcept override { return num_threads_; }
    Status allocate(std::size_t bytes, void** out) noexcept override;
    void release(void* pointer, std::size_t bytes) noexcept override;
    Status create_queue(void* native, Queue** out) noexcept override;
    Status copy(Queue& queue, void* destination, const void* source, std::size_t bytes,
                CopyKind kind) noexcept override;
    Status zero(Queue& queue, void* destination, std::size_t bytes) noexcept override;
    [[nodiscard]] CandidateList candidates(OpKind kind) const noexcept override;

  private:
    DeviceConfig config_;
    topology::Topology topology_;
    int32_t num_threads_;
    TextLine<128> thread_reason_;
};

} // namespace mp::backends::host
