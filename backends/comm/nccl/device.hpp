// SPDX-License-Identifier: Apache-2.0
// What the transport over NCCL needs of a GPU; filled by the module cuda, and by a test.
#pragma once

#include <cstdint>
#include <memory>

#include "status/status.hpp"

namespace mp::comm {

class NcclDevice {
  public:
    NcclDevice() = default;
    NcclDevice(const NcclDevice&) = delete;
    NcclDevice& operator=(const NcclDevice&) = delete;
    virtual ~NcclDevice() = default;

    [[nodiscard]] virtual int32_t index() const noexcept = 0;
    // The same GPU with a stream and memory of its own, for a group.
    virtual Status make_another(std::shared_ptr<NcclDevice>* out) const noexcept = 0;
    // The stream of all work here, which waits for nothing else.
    [[nodiscard]] virtual void* stream() const noexcept = 0;
    // Makes the device the calling thread's, until leave() with what enter() gave. From any thread.
    virtual void* enter() noexcept = 0;
    virtual void leave(void* before) noexcept = 0;

    [[nodiscard]] virtual bool is_device_memory(const void* pointer) noexcept = 0;
    // Device memory, and as much host memory that copies need not wait for. Given back to a pool: to free it would wait
    // for all work on the device, and so for other ranks. From any thread.
    virtual Status allocate(int64_t bytes, void** device, void** pinned) noexcept = 0;
    virtual void release(void* device, void* pinned) noexcept = 0;
    // From now on nothing is freed: the device may hang.
    virtual void set_broken() noexcept = 0;
    // On the stream, between device memory, or from or to pinned memory. Does not wait.
    virtual Status copy(void* to, const void* from, int64_t bytes) noexcept = 0;
    // A mark in the stream, and whether it has been reached.
    virtual Status mark(void** event) noexcept = 0;
    // A mark in another stream of the same GPU, for which this one can wait.
    virtual Status mark_other(void* stream, void** event) noexcept = 0;
    virtual Status wait_for_mark(void* event) noexcept = 0;
    // The other way round: that stream waits for a mark in this one.
    virtual Status make_wait(void* stream, void* event) noexcept = 0;
    virtual Status reached(void* event, bool* done) noexcept = 0;
    virtual void drop_mark(void* event) noexcept = 0;
};

class DeviceScope {
  public:
    explicit DeviceScope(NcclDevice& device) noexcept : device_(device), before_(device.enter()) {}
    ~DeviceScope() { device_.leave(before_); }
    DeviceScope(const DeviceScope&) = delete;
    DeviceScope& operator=(const DeviceScope&) = delete;

  private:
    NcclDevice& device_;
    void* before_;
};

} // namespace mp::comm
