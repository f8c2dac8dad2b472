// SPDX-License-Identifier: Apache-2.0
// A point in a stream's work.
#pragma once

#include <hip/hip_runtime_api.h>

#include "device/backend.hpp"

namespace mp::backends::hip {

class HipEvent final : public Event {
  public:
    static Status create(int32_t device, Event** out) noexcept;
    ~HipEvent() override;

    Status record(Queue& queue) noexcept override;
    Status wait_in(Queue& queue) noexcept override;
    Status sync() noexcept override;
    Status test(bool* reached) noexcept override;

  private:
    HipEvent(int32_t device, hipEvent_t event) noexcept : device_(device), event_(event) {}

    int32_t device_;
    hipEvent_t event_;
};

} // namespace mp::backends::hip
