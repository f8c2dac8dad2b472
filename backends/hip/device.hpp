// SPDX-License-Identifier: Apache-2.0
// One AMD GPU: memory, streams, copies, and Kokkos's candidate for each operation. Compiled and linked in every check, and
// never run: there was no such GPU to run it on.
#pragma once

#include <cstdint>
#include <hip/hip_runtime_api.h>

#include "device/backend.hpp"

namespace mp::backends::hip {

inline constexpr const char* kName = "hip";

// The number of devices, or device_unavailable with the reason and what to do.
Status count_devices(int32_t* count) noexcept;
// Of one that there is.
Status summarize(int32_t index, DeviceSummary* out) noexcept;

// Makes a device the calling thread's for a scope.
class DeviceGuard {
  public:
    explicit DeviceGuard(int32_t index) noexcept;
    ~DeviceGuard();
    DeviceGuard(const DeviceGuard&) = delete;
    DeviceGuard& operator=(const DeviceGuard&) = delete;

  private:
    int saved_ = -1; // -1: nothing to restore
};

class HipDevice final : public Device {
  public:
    static Status open(const DeviceConfig& config, Device** out) noexcept;

    [[nodiscard]] DeviceKind kind() const noexcept override { return DeviceKind::hip; }
    [[nodiscard]] int32_t index() const noexcept override { return index_; }
    void describe(Properties& to) const noexcept override;
    [[nodiscard]] int32_t num_threads() const noexcept override { return 1; }
    // Its products are the portable kernel's: none is faster than fp32.
    [[nodiscard]] DeviceCapability capability() const noexcept override;

    Status allocate(std::size_t bytes, void** out) noexcept override;
    void release(void* pointer, std::size_t bytes) noexcept override;
    Status create_queue(void* native, Queue** out) noexcept override;
    Status create_event(Event** out) noexcept override;
    Status copy(Queue& queue, void* destination, const void* source, std::size_t bytes,
                CopyKind kind) noexcept override;
    Status zero(Queue& queue, void* destination, std::size_t bytes) noexcept override;
    Status pin(void* host, std::size_t bytes) noexcept override;
    void unpin(void* host, std::size_t bytes) noexcept override;
    [[nodiscard]] CandidateList candidates(OpKind kind) const noexcept override;

  private:
    explicit HipDevice(int32_t index) noexcept : index_(index) {}
    Status initialize() noexcept;

    int32_t index_;
    hipDeviceProp_t properties_ = {};
};

} // namespace mp::backends::hip
