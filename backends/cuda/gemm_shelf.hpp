// SPDX-License-Identifier: Apache-2.0
// Where a candidate of gemm leaves the plan by which it saw that it takes a product, for its prepare(), which is asked next.
// A search for an algorithm takes tens of microseconds, and both would make it.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "device/backend.hpp"

namespace mp::backends::cuda {

class GemmShelf {
  public:
    // In the place of what lies there. `maker` tells candidates apart.
    void put(const void* maker, const GemmDesc& desc, std::unique_ptr<Plan> plan) noexcept {
        const std::lock_guard lock(mutex_); // the earlier plan goes with `plan`, after the lock
        maker_ = maker;
        desc_ = desc;
        plan_.swap(plan);
    }
    // Null where another lies there, or none: somebody else may have been faster.
    std::unique_ptr<Plan> take(const void* maker, const GemmDesc& desc) noexcept {
        const std::lock_guard lock(mutex_);
        return maker_ == maker && desc_ == desc ? std::move(plan_) : nullptr;
    }

  private:
    std::mutex mutex_;
    const void* maker_ = nullptr;
    GemmDesc desc_ = {};
    std::unique_ptr<Plan> plan_;
};

} // namespace mp::backends::cuda
