// SPDX-License-Identifier: Apache-2.0
#include "nccl_order.hpp"

#include <algorithm>

namespace mp::simulated {

void NcclOrders::add(int device, int64_t communicator, int rank,
                     const std::vector<NcclPart>& parts) {
    const std::lock_guard lock(mutex_);
    const std::size_t kernel = meets_.size();
    meets_.push_back(kernel);
    orders_[device].push_back(kernel);
    for (const NcclPart& part : parts) {
        const bool is_sent = part.kind == NcclPart::send;
        const bool is_received = part.kind == NcclPart::receive;
        const int64_t from = is_sent ? rank : is_received ? part.peer : -1;
        const int64_t to = is_sent ? part.peer : is_received ? rank : -1;
        join({communicator, from, to, counts_[{communicator, rank, from, to, is_sent ? 1 : 0}]++},
             kernel);
    }
}

std::size_t NcclOrders::meeting_of(std::size_t kernel) noexcept {
    while (meets_[kernel] != kernel) {
        kernel = meets_[kernel] = meets_[meets_[kernel]];
    }
    return kernel;
}

void NcclOrders::join(const Exchanged& what, std::size_t kernel) {
    const auto [first, is_first] = begun_.try_emplace(what, kernel);
    if (!is_first) {
        meets_[meeting_of(kernel)] = meeting_of(first->second);
    }
}

// Runs them all: a meeting whose kernels are the next ones of their devices is over.
int64_t NcclOrders::stuck() {
    const std::lock_guard lock(mutex_);
    std::vector<int64_t> waiting(meets_.size()); // kernels of a meeting that are not the next ones
    for (std::size_t kernel = 0; kernel < meets_.size(); ++kernel) {
        ++waiting[meeting_of(kernel)];
    }
    std::map<std::size_t, std::vector<int>> devices; // by meeting, those where it is the next
    std::map<int, std::size_t> places;
    auto left = static_cast<int64_t>(meets_.size());
    std::vector<int> moved;
    for (const auto& [device, order] : orders_) {
        moved.push_back(device);
    }
    while (!moved.empty()) {
        const int device = moved.back();
        moved.pop_back();
        const std::vector<std::size_t>& order = orders_[device];
        if (places[device] == order.size()) {
            continue;
        }
        const std::size_t meeting = meeting_of(order[places[device]]);
        devices[meeting].push_back(device);
        if (--waiting[meeting] == 0) {
            for (const int each : devices[meeting]) {
                ++places[each];
                --left;
                moved.push_back(each);
            }
            devices.erase(meeting);
        }
    }
    return left;
}

} // namespace mp::simulated
