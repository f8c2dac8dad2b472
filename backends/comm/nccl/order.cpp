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
    std::erase(waiting_, &request);
    std::erase(running_, &request);
    last_ = last_ == &request ? nullptr : last_;
}

void NcclOrder::remove(const NcclTransport& transport) noexcept {
    const auto is_of_it = [&](const NcclRequest* request) {
        return &request->transport() == &transport;
    };
    std::erase_if(waiting_, is_of_it);
    std::erase_if(running_, is_of_it);
    last_ = last_ != nullptr && is_of_it(last_) ? nullptr : last_;
}

bool NcclOrder::has(const NcclTransport& transport) const noexcept {
    return std::any_of(waiting_.begin(), waiting_.end(), [&](const NcclRequest* request) {
        return &request->transport() == &transport;
    });
}

void NcclOrder::look_at_running() noexcept {
    for (std::size_t i = 0; i < running_.size();) {
        NcclTransport& transport = running_[i]->transport();
        bool is_ready = false;
        if (const Status status = transport.check_async(&is_ready); !status.ok()) {
            transport.give_up(status); // takes its requests away
            i = 0;
        } else {
            ++i;
        }
    }
}

void NcclOrder::advance() noexcept {
    look_at_running();
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
            next.transport().give_up(status);
        } else if (next.is_concluded()) {
            last_ = &next;
            waiting_.pop_front();
            running_.push_back(&next); // add() made room
        }
    }
}

} // namespace mp::comm
