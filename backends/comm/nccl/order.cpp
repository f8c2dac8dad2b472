// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/order.hpp"

#include <algorithm>
#include <map>

#include "comm/nccl/request.hpp"

namespace mp::comm {

std::shared_ptr<NcclOrder> NcclOrder::of(int32_t device) {
    static std::mutex mutex;
    static std::map<int32_t, std::weak_ptr<NcclOrder>> orders;
    const std::lock_guard lock(mutex);
    std::weak_ptr<NcclOrder>& known = orders[device];
    std::shared_ptr<NcclOrder> order = known.lock();
    if (order == nullptr) {
        order = std::make_shared<NcclOrder>();
        known = order;
    }
    return order;
}

void NcclOrder::remove(const NcclRequest& request) noexcept {
    waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), &request), waiting_.end());
    last_ = last_ == &request ? nullptr : last_;
}

void NcclOrder::remove(const NcclTransport& transport) noexcept {
    const auto is_of_it = [&](const NcclRequest* request) {
        return &request->transport() == &transport;
    };
    waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), is_of_it), waiting_.end());
    last_ = last_ != nullptr && is_of_it(last_) ? nullptr : last_;
}

bool NcclOrder::has(const NcclTransport& transport) const noexcept {
    return std::any_of(waiting_.begin(), waiting_.end(), [&](const NcclRequest* request) {
        return &request->transport() == &transport;
    });
}

void NcclOrder::advance() noexcept {
    while (!waiting_.empty()) {
        NcclRequest& next = *waiting_.front();
        bool is_ready = false;
        Status status = next.transport().check_async(&is_ready);
        if (status.ok() && !is_ready) {
            return; // those behind it wait too
        }
        if (status.ok()) {
            status = next.is_issued() ? next.conclude() : next.issue(last_);
        }
        if (!status.ok()) {
            next.transport().fail(status);
        } else if (next.is_concluded()) {
            last_ = &next;
            waiting_.pop_front();
        }
    }
}

} // namespace mp::comm
