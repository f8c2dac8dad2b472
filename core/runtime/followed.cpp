// SPDX-License-Identifier: Apache-2.0
#include "runtime/followed.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

namespace mp {
namespace {

// Of the process, in which hardly a program has one that follows something.
struct Registry {
    std::mutex mutex;
    std::vector<std::weak_ptr<Followed>> all;
    std::atomic<int64_t> added{0}; // of what was ever followed: nobody looks further without
};

Registry& registry() {
    static auto* const instance = new Registry; // also for what ends with the process
    return *instance;
}

bool is_open(const std::shared_ptr<Awaited>& each) { return !each->is_over(); }

} // namespace

std::shared_ptr<Followed> Followed::make(const Device& device) {
    std::shared_ptr<Followed> made(new Followed(device));
    const std::lock_guard lock(registry().mutex);
    std::erase_if(registry().all, [](const auto& each) { return each.expired(); });
    registry().all.push_back(made);
    return made;
}

void Followed::drop_ended(bool all) noexcept {
    std::erase_if(list_, [all](const std::shared_ptr<Awaited>& each) {
        return each->is_over() && (all || each->wait().ok());
    });
}

void Followed::add(std::shared_ptr<Awaited> what) {
    const std::lock_guard lock(mutex_);
    drop_ended(false);
    list_.push_back(std::move(what));
    ++registry().added;
}

void Followed::add(const List& list) {
    const std::lock_guard lock(mutex_);
    drop_ended(false);
    list_.insert(list_.end(), list.begin(), list.end());
}

bool Followed::exists() noexcept {
    if (registry().added == 0) {
        return false;
    }
    const std::lock_guard lock(mutex_);
    return !list_.empty();
}

Followed::List Followed::open() {
    const std::lock_guard lock(mutex_);
    drop_ended(false);
    return list_;
}

bool Followed::has_open() noexcept {
    const std::lock_guard lock(mutex_);
    return std::any_of(list_.begin(), list_.end(), is_open);
}

// Other threads may wait for the same, and add more.
Status Followed::await() noexcept {
    for (;;) {
        std::shared_ptr<Awaited> next;
        {
            const std::lock_guard lock(mutex_);
            const auto found = std::find_if(list_.begin(), list_.end(), is_open);
            if (found == list_.end()) {
                break;
            }
            next = *found;
        }
        (void)next->wait();
    }
    const std::lock_guard lock(mutex_);
    for (const std::shared_ptr<Awaited>& each : list_) {
        if (Status status = each->wait(); !status.ok()) { // at once
            return status;
        }
    }
    return {};
}

Status Followed::settle() noexcept {
    const Status failure = await();
    const std::lock_guard lock(mutex_);
    drop_ended(true);
    return failure;
}

void Followed::await_all(const Device& device) noexcept {
    if (registry().added == 0) {
        return;
    }
    for (;;) {
        std::shared_ptr<Followed>
            next; // waited for without the lock: other ranks may be threads that make streams
        {
            const std::lock_guard lock(registry().mutex);
            for (const std::weak_ptr<Followed>& each : registry().all) {
                const std::shared_ptr<Followed> one = each.lock();
                if (one != nullptr && one->device_ == &device && one->has_open()) {
                    next = one;
                    break;
                }
            }
        }
        if (next == nullptr) {
            return;
        }
        (void)next->await();
    }
}

} // namespace mp
