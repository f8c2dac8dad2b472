// SPDX-License-Identifier: Apache-2.0
#include "nccl_order.hpp"

namespace mp::simulated {

void NcclOrders::add(int device, int64_t communicator) {
    const std::lock_guard lock(mutex_);
    orders_[device].emplace_back(communicator, counts_[{device, communicator}]++);
}

int64_t NcclOrders::differences() {
    const std::lock_guard lock(mutex_);
    int64_t found = 0;
    for (const auto& [device, order] : orders_) {
        std::map<Kernel, std::size_t> places;
        for (std::size_t i = 0; i < order.size(); ++i) {
            places[order[i]] = i;
        }
        for (const auto& [other, others] : orders_) {
            std::size_t last = 0;
            for (const Kernel& kernel : others) {
                const auto place = places.find(kernel);
                if (place == places.end()) {
                    continue;
                }
                found += place->second < last ? 1 : 0;
                last = place->second;
            }
        }
    }
    return found;
}

} // namespace mp::simulated
