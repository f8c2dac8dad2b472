// SPDX-License-Identifier: Apache-2.0
// A HIP stream, ours or the caller's, and the Kokkos instance on it, made when first asked for.
#pragma once

#include <atomic>
#include <hip/hip_runtime_api.h>
#include <mutex>

#include "device/backend.hpp"
#include "hip/kokkos_space.hpp"

namespace mp::backends::hip {

class HipQueue final : public Queue {
  public:
    // `native` null: a stream of our own, which does not synchronize with the null stream.
    static Status create(int32_t device, void* native, Queue** out) noexcept;
    ~HipQueue() override;

    Status sync() noexcept override;
    [[nodiscard]] void* native() const noexcept override { return stream_; }
    // Unsupported in one: this backend knows nothing of them.
    Status capture(uint64_t* number) noexcept override;
    // To put work into, which the queue's end waits for.
    [[nodiscard]] hipStream_t stream() noexcept {
        has_work_.store(true, std::memory_order_relaxed);
        return stream_;
    }
    [[nodiscard]] int32_t device() const noexcept { return device_; }

    // An error of earlier work that has come out already, without waiting; also what capture() says. The device is current.
    Status check_health() noexcept;
    Status kokkos_space(KokkosSpace** out) noexcept;

  private:
    HipQueue(int32_t device, hipStream_t stream, bool is_owned) noexcept
        : device_(device), stream_(stream), is_owned_(is_owned) {}

    int32_t device_;
    hipStream_t stream_;
    bool is_owned_;
    std::atomic<bool> has_work_{false}; // ever, but events
    std::mutex mutex_;                  // of what follows
    KokkosSpace* kokkos_space_ = nullptr;
};

} // namespace mp::backends::hip
