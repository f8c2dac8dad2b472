// SPDX-License-Identifier: Apache-2.0
#include "runtime/followed.hpp"

#include <utility>

namespace mp {

void Followed::drop_ended() noexcept {
    std::erase_if(list_, [this](const std::shared_ptr<Awaited>& each) {
        if (!each->is_over()) {
            return false;
        }
        const Status status = each->wait(); // at once
        failure_ = failure_.ok() ? status : failure_;
        return true;
    });
}

void Followed::add(std::shared_ptr<Awaited> what) {
    const std::lock_guard lock(mutex_);
    drop_ended();
    list_.push_back(std::move(what));
}

void Followed::add(const List& list) {
    const std::lock_guard lock(mutex_);
    list_.insert(list_.end(), list.begin(), list.end());
}

bool Followed::exists() noexcept {
    const std::lock_guard lock(mutex_);
    return !list_.empty();
}

Followed::List Followed::open() {
    const std::lock_guard lock(mutex_);
    drop_ended();
    return list_;
}

Status Followed::settle() noexcept {
    List list;
    Status failure;
    {
        const std::lock_guard lock(mutex_);
        list.swap(list_);
        failure = std::exchange(failure_, Status());
    }
    for (const std::shared_ptr<Awaited>& each : list) {
        const Status status = each->wait();
        failure = failure.ok() ? status : failure;
    }
    return failure;
}

} // namespace mp
