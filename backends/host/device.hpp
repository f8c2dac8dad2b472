// SPDX-License-Identifier: Apache-2.0
// The CPU as a device: memory from the caller's hooks, work done by the calling thread and those of a pool.
#pragma once

#include <cstdint>

#include "host/resources/resources.hpp"
#include "host/resources/threads.hpp"
#include "topology/topology.hpp"

namespace mp::backends::host {

// Work is done when the call that enqueues it returns.
class HostQueue final : public Queue {
  public:
    Status sync() noexcept override { return {}; }
};

class HostDevice final : public HostBase {
  public:
    static Status open(const DeviceConfig& config, Device** out) noexcept;

    [[nodiscard]] DeviceKind kind() const noexcept override { return DeviceKind::host; }
    [[nodiscard]] int32_t index() const noexcept override { return 0; }
    void describe(Properties& to) const noexcept override;
    [[nodiscard]] DeviceCapability capability() const noexcept override;
    [[nodiscard]] int32_t num_threads() const noexcept override { return count_.count; }
    Status allocate(std::size_t bytes, void** out) noexcept override;
    void release(void* pointer, std::size_t bytes) noexcept override;
    Status create_queue(void* native, Queue** out) noexcept override;
    Status copy(Queue& queue, void* destination, const void* source, std::size_t bytes,
                CopyKind kind) noexcept override;
    Status zero(Queue& queue, void* destination, std::size_t bytes) noexcept override;
    [[nodiscard]] CandidateList candidates(OpKind kind) const noexcept override;

  private:
    HostDevice(const DeviceConfig& config, topology::Topology topology,
               const ThreadCount& threads) noexcept;
    void log(int32_t level, const char* message) const noexcept;
    void bind() noexcept;

    DeviceConfig config_;
    topology::Topology topology_;
    ThreadCount count_;
    topology::CoreLease cores_;
    bool is_bound_ = false;
};

} // namespace mp::backends::host
