// SPDX-License-Identifier: Apache-2.0
// In which order each GPU was given the kernels of all its communicators, and whether kernels in that order can wait for ever for
// each other: each runs when those before it on its GPU are over, and ends when those that it exchanges something with run, too.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "nccl_kernel.hpp"

namespace mp::simulated {

class NcclOrders {
  public:
    // The next kernel on a device, of this rank of a communicator.
    void add(int device, int64_t communicator, int rank, const std::vector<NcclPart>& parts);
    // Kernels that would never run.
    [[nodiscard]] int64_t stuck();

  private:
    // What ranks exchange: the how manieth of a communicator from one to another, or of all, which is from and to -1. A rank that
    // has no part in a collective has no kernel, so kernels themselves cannot be counted.
    using Exchanged = std::array<int64_t, 4>;

    [[nodiscard]] std::size_t meeting_of(std::size_t kernel) noexcept;
    void join(const Exchanged& what, std::size_t kernel);

    std::mutex mutex_;
    std::map<int, std::vector<std::size_t>> orders_; // kernels, by device
    std::vector<std::size_t> meets_; // by kernel: one that it runs at once with, at last itself
    std::map<Exchanged, std::size_t> begun_; // by what is exchanged, a kernel of it
    std::map<std::array<int64_t, 5>, int64_t>
        counts_; // by communicator, rank, from, to, and whether it is sent
};

} // namespace mp::simulated
