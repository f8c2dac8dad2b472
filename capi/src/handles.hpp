// SPDX-License-Identifier: Apache-2.0
// What an opaque handle holds, and how a destroyed one is recognized.
//
// A handle is a tag and a shared reference. Its memory is never given back to the system: a destroyed handle
// waits in a queue, dead, before it is used for a new one. So a stale pointer reads valid memory and is
// recognized until kQuarantine other handles of its kind have been destroyed after it.
//
// A call holds the objects that it was given until it ends, so another thread may destroy their handles meanwhile: the
// object goes with the last call that uses it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "process/float_environment.hpp"
#include "status/status.hpp"

namespace mp::capi {

inline constexpr std::size_t kQuarantine = 1024;

// Who works with an object that one thread at a time may use. A callback of that thread's may come in again.
class Claim {
  public:
    // False where another thread works with it. `is_new`: this call is to give it back.
    bool take(bool& is_new) noexcept {
        const std::thread::id me = std::this_thread::get_id();
        std::thread::id nobody;
        is_new = owner_.compare_exchange_strong(nobody, me, std::memory_order_acquire);
        return is_new || nobody == me;
    }
    void give_back() noexcept { owner_.store(std::thread::id(), std::memory_order_release); }

  private:
    std::atomic<std::thread::id> owner_;
};

// Those that a call has, which give themselves back. Handles are never freed, so neither is a claim.
class Claims {
  public:
    Claims() = default;
    Claims(const Claims&) = delete;
    Claims& operator=(const Claims&) = delete;
    ~Claims() {
        for (std::size_t i = 0; i < count_; ++i) {
            few_[i]->give_back();
        }
        for (Claim* claim : more_) {
            claim->give_back();
        }
    }

    // Without memory for it the claim is given back, and the call fails.
    void add(Claim& claim) {
        if (count_ < few_.size()) {
            few_[count_++] = &claim;
            return;
        }
        try {
            more_.push_back(&claim);
        } catch (...) {
            claim.give_back();
            throw;
        }
    }

  private:
    std::size_t count_ = 0;
    std::array<Claim*, 4> few_{};
    std::vector<Claim*> more_;
};

// `Tag` tells the kinds apart; T is the core object. kOneThread: calls from two threads at once are refused.
template <typename T, uint32_t Tag, bool kForOneThread = false> struct Handle {
    using Object = T;
    static constexpr bool kOneThread = kForOneThread;
    static constexpr uint32_t kLive = Tag;
    static constexpr uint32_t kDead = ~Tag;

    std::atomic<uint32_t> tag{kDead};
    mutable std::mutex mutex; // for the reference: taken by one thread while another gives it up
    mutable Claim claim;      // read where kOneThread
    std::shared_ptr<T> object;
};

// What the call under way on this thread was given. One for each call; a callback's calls have their own.
class HeldObjects {
  public:
    HeldObjects() noexcept : outer_(current()) { current() = this; }
    HeldObjects(const HeldObjects&) = delete;
    HeldObjects& operator=(const HeldObjects&) = delete;
    ~HeldObjects() { current() = outer_; }

    static void hold(std::shared_ptr<const void> object) {
        HeldObjects* held = current();
        if (held == nullptr) {
            return;
        }
        if (held->count_ < held->few_.size()) {
            held->few_[held->count_++] = std::move(object);
        } else {
            held->more_.push_back(std::move(object));
        }
    }

    // Until the call ends.
    static void hold(Claim& claim) {
        HeldObjects* held = current();
        if (held == nullptr) {
            claim.give_back(); // of no call
        } else {
            held->claims_.add(claim);
        }
    }

  private:
    static HeldObjects*& current() noexcept {
        static thread_local HeldObjects* innermost = nullptr;
        return innermost;
    }

    HeldObjects* outer_;
    std::size_t count_ = 0;
    std::array<std::shared_ptr<const void>, 8> few_;
    std::vector<std::shared_ptr<const void>> more_;
    Claims claims_;
};

// The dead handles of one kind. Never destroyed, so that a handle released during exit still finds it.
template <typename H> class Quarantine {
  public:
    static Quarantine& instance() {
        static auto* quarantine = new Quarantine; // reachable until the end on purpose
        return *quarantine;
    }

    H* take() {
        {
            const std::lock_guard lock(mutex_);
            if (dead_.size() > kQuarantine) {
                H* oldest = dead_.front();
                dead_.pop_front();
                return oldest;
            }
        }
        auto fresh = std::make_unique<H>();
        const std::lock_guard lock(mutex_);
        all_.push_back(fresh.get()); // keeps it reachable for leak checkers
        return fresh.release();
    }

    void give(H* handle) {
        const std::lock_guard lock(mutex_);
        dead_.push_back(handle);
    }

  private:
    std::mutex mutex_;
    std::deque<H*> dead_;
    std::deque<H*> all_;
};

template <typename H> H* make_handle(std::shared_ptr<typename H::Object> object) {
    H* handle = Quarantine<H>::instance().take();
    handle->object = std::move(object);
    handle->tag.store(H::kLive, std::memory_order_release);
    return handle;
}

// Destroys a handle and gives what it held: null where it is NULL, was destroyed before, or is of another kind.
template <typename H> std::shared_ptr<typename H::Object> take_object(H* handle) noexcept {
    std::shared_ptr<typename H::Object> last;
    uint32_t live = H::kLive;
    if (handle == nullptr || !handle->tag.compare_exchange_strong(live, H::kDead)) {
        return last;
    }
    try {
        {
            const std::lock_guard lock(handle->mutex);
            last.swap(handle->object);
        }
        Quarantine<H>::instance().give(handle);
    } catch (...) { // no memory for the queue: the dead handle stays dead for ever
    }
    return last;
}

template <typename H> void destroy_handle(H* handle) noexcept {
    const process::DefaultFloats floats;
    (void)take_object(handle);
}

// The object behind a handle, held until the call ends; throws for NULL, for a destroyed handle and for one of another
// kind.
template <typename H>
std::shared_ptr<typename H::Object> object_of(const H* handle, const char* name) {
    if (handle == nullptr) {
        fail(Code::null_argument, "%s is NULL; it must be a live handle", name);
    }
    std::shared_ptr<typename H::Object> object;
    if (handle->tag.load(std::memory_order_acquire) == H::kLive) {
        const std::lock_guard lock(handle->mutex);
        object = handle->object;
    }
    if (object == nullptr) {
        fail(Code::invalid_handle,
             "%s is not a live handle: it was destroyed, or is of another kind", name);
    }
    HeldObjects::hold(object);
    if constexpr (H::kOneThread) {
        bool is_new = false;
        if (!handle->claim.take(is_new)) {
            fail(Code::bad_state,
                 "%s is in use by another thread; calls with one object come one after another",
                 name);
        }
        if (is_new) {
            HeldObjects::hold(handle->claim);
        }
    }
    return object;
}

} // namespace mp::capi
