// SPDX-License-Identifier: Apache-2.0
// SumsMemory: where a rank's sums of gradients lie: on the device, or in host memory, where they come by a lane.
#pragma once

#include "runtime/host_lane.hpp"

namespace mp::shard {

class SumsMemory {
  public:
    SumsMemory() = default;
    // Zeros. `lane`: null, on the stream's device.
    SumsMemory(Stream& stream, const HostLane* lane, std::size_t bytes);

    [[nodiscard]] char* data() const noexcept {
        return on_host_.bytes() > 0 ? reinterpret_cast<char*>(on_host_.data())
                                    : on_device_.as<char>();
    }
    [[nodiscard]] int64_t device_bytes() const noexcept {
        return static_cast<int64_t>(on_device_.bytes());
    }
    [[nodiscard]] int64_t host_bytes() const noexcept {
        return static_cast<int64_t>(on_host_.bytes());
    }

  private:
    Buffer on_device_; // or
    PinnedBuffer on_host_;
};

} // namespace mp::shard
