// SPDX-License-Identifier: Apache-2.0
// In which order each GPU was given the kernels of its communicators. Two that share two communicators must have the same one,
// or their kernels may wait for each other for ever.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace mp::simulated {

class NcclOrders {
  public:
    // The next kernel of a communicator on a device.
    void add(int device, int64_t communicator);
    // Neighbours in one device's order that another device has the other way round.
    [[nodiscard]] int64_t differences();

  private:
    using Kernel = std::pair<int64_t, int64_t>; // of which communicator the how manieth

    std::mutex mutex_;
    std::map<int, std::vector<Kernel>> orders_;
    std::map<std::pair<int, int64_t>, int64_t> counts_; // by device and communicator
};

} // namespace mp::simulated
