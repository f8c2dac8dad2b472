// SPDX-License-Identifier: Apache-2.0
// Stream: a device's queue together with the device and with scratch memory that lives in queue order.
#pragma once

#include <cstddef>
#include <memory>

#include "device/backend.hpp"
#include "runtime/followed.hpp"
#include "runtime/memory_watch.hpp"
#include "runtime/queue_scratch.hpp"

namespace mp {

class Stream;

// Scratch memory for work enqueued on one stream. Giving it back while that work is still pending is fine:
// whoever takes it next enqueues behind it.
class Scratch {
  public:
    Scratch(Stream& stream, std::size_t bytes);
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    [[nodiscard]] void* data() const noexcept { return data_; }
    [[nodiscard]] const Stream& stream() const noexcept { return *stream_; }

  private:
    std::shared_ptr<Stream> stream_;
    void* data_ = nullptr;
};

// Always owned by a shared_ptr: what is still enqueued on it keeps it.
class Stream : public std::enable_shared_from_this<Stream> {
  public:
    // `native` null: a stream of our own.
    Stream(std::shared_ptr<Device> device, void* native);
    ~Stream() { (void)followed_->await(); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    [[nodiscard]] Device& device() const noexcept { return *device_; }
    [[nodiscard]] const std::shared_ptr<Device>& shared_device() const noexcept { return device_; }
    [[nodiscard]] Queue& queue() const noexcept { return *queue_; }
    // First for what the stream follows, by the deadline of each: a rank that never comes fails here, and hangs nobody.
    void sync() const {
        if (followed_->exists()) {
            refuse_capture("the queue is to be waited for");
            check(followed_->settle());
        }
        check(queue_->sync());
    }
    // The same where nobody can be told what has failed.
    void finish() const noexcept {
        (void)followed_->await();
        (void)queue_->sync();
    }
    [[nodiscard]] Followed& followed() const noexcept { return *followed_; }

    void copy(void* destination, const void* source, std::size_t bytes, CopyKind kind) const {
        if (followed_->exists() && device_->copy_waits(*queue_, destination, source, bytes, kind)) {
            check(followed_->settle()); // the work may be behind other ranks
        }
        check(device_->copy(*queue_, destination, source, bytes, kind));
        note_write(destination, bytes, is_captured());
    }
    void zero(void* data, std::size_t bytes) const {
        check(device_->zero(*queue_, data, bytes));
        note_write(data, bytes, is_captured());
    }

    // The capture that the queue is in (device/backend.hpp); 0 for none.
    [[nodiscard]] uint64_t capture() const {
        uint64_t number = 0;
        check(queue_->capture(&number));
        return number;
    }
    [[nodiscard]] bool is_captured() const { return capture() != 0; }
    // Throws bad_state in a capture. `what` is a sentence: what would have to be done.
    void refuse_capture(const char* what) const { check(queue_->refuse_capture(what)); }
    // Memory that outlives the work at hand. Throws in a capture, before anything is changed.
    [[nodiscard]] Buffer allocate(std::size_t bytes) const {
        if (bytes > 0) {
            refuse_capture("memory has to be allocated");
        }
        return {device_, bytes};
    }

    // The same for what comes and goes in the order of this stream's work: Buffer::release_on() gives it back.
    [[nodiscard]] Buffer allocate_ordered(std::size_t bytes) const {
        if (bytes > 0) {
            refuse_capture("memory has to be allocated");
        }
        return {device_, *queue_, bytes};
    }

    // Scratch memory comes from here from now on, and fails where it does not suffice; null: from the device. Waits.
    void set_workspace(void* memory, std::size_t bytes) {
        sync(); // work may still use the old one
        scratch_->set_workspace(memory, bytes);
    }
    [[nodiscard]] void* workspace() const noexcept { return scratch_->workspace(); }
    [[nodiscard]] std::size_t workspace_bytes() const noexcept {
        return scratch_->workspace_bytes();
    }
    // What a workspace needs for all the work so far.
    [[nodiscard]] std::size_t workspace_peak() const { return scratch_->workspace_peak(); }

  private:
    friend class Scratch;

    std::shared_ptr<Device> device_;
    std::unique_ptr<QueueScratch> scratch_; // outlives the queue, which waits for work that uses it
    std::unique_ptr<Queue> queue_;
    std::shared_ptr<Followed> followed_;
};

} // namespace mp
