// SPDX-License-Identifier: Apache-2.0
// What the host's operations and products work with. The device (host/device.hpp), which has their lists, is made of it: so they
// see this, and not the device.
#pragma once

#include "host/resources/scratch_pool.hpp"
#include "host/resources/thread_pool.hpp"

namespace mp::backends::host {

// What a product works with.
struct Resources {
    ScratchPool& scratch;
    ThreadPool& threads;
};

// The part of the device that has them.
class HostBase : public Device {
  public:
    // Working memory for operations; locks inside.
    [[nodiscard]] ScratchPool& scratch() const noexcept { return scratch_; }
    [[nodiscard]] ThreadPool& threads() noexcept { return threads_; }

  protected:
    HostBase(const MemoryTable& memory, int32_t threads, const ParallelTable& parallel) noexcept
        : scratch_(memory), threads_(threads, parallel) {}

  private:
    mutable ScratchPool scratch_;
    ThreadPool threads_;
};

// Of a device that is the host.
inline Resources resources_of(Device& device) noexcept {
    auto& host = static_cast<HostBase&>(device);
    return {host.scratch(), host.threads()};
}

} // namespace mp::backends::host
