// SPDX-License-Identifier: Apache-2.0
// Stream: a device's queue together with the device and with scratch memory that lives in queue order.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "device/buffer.hpp"
#include "device/memory_watch.hpp"
#include "interface/backend.hpp"

namespace mp {

class Stream;

// Where scratch memory of one stream would lie in one piece of memory: first fit, so that the same work has the same places.
class ScratchPlaces {
  public:
    // The offset of so many bytes. Memory may run out.
    std::size_t take(std::size_t bytes);
    void give(std::size_t offset) noexcept;
    // The end of the last byte ever taken.
    [[nodiscard]] std::size_t peak() const noexcept { return peak_; }

    static constexpr std::size_t kAlignment = 256;

  private:
    struct Range {
        std::size_t begin;
        std::size_t end;
    };
    std::vector<Range> taken_; // in order
    std::size_t peak_ = 0;
};

// Scratch memory for work enqueued on one stream. Giving it back while that work is still pending is fine:
// whoever takes it next enqueues behind it.
class Scratch {
  public:
    Scratch(Stream& stream, std::size_t bytes);
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    [[nodiscard]] void* data() const noexcept { return data_; }

  private:
    std::shared_ptr<Stream> stream_;
    std::size_t place_ = 0;
    Buffer buffer_; // none in a workspace
    void* data_ = nullptr;
};

// Always owned by a shared_ptr: what is still enqueued on it keeps it.
class Stream : public std::enable_shared_from_this<Stream> {
  public:
    // `native` null: a stream of our own.
    Stream(std::shared_ptr<Device> device, void* native);

    [[nodiscard]] Device& device() const noexcept { return *device_; }
    [[nodiscard]] const std::shared_ptr<Device>& shared_device() const noexcept { return device_; }
    [[nodiscard]] Queue& queue() const noexcept { return *queue_; }
    void sync() const { check(queue_->sync()); }

    void copy(void* destination, const void* source, std::size_t bytes, CopyKind kind) const {
        check(device_->copy(*queue_, destination, source, bytes, kind));
        note_write(destination, bytes);
    }
    void zero(void* data, std::size_t bytes) const {
        check(device_->zero(*queue_, data, bytes));
        note_write(data, bytes);
    }

    // Scratch memory comes from here from now on, and fails where it does not suffice; null: from the device. Waits.
    void set_workspace(void* memory, std::size_t bytes);
    [[nodiscard]] void* workspace() const noexcept { return workspace_; }
    [[nodiscard]] std::size_t workspace_bytes() const noexcept { return workspace_bytes_; }
    // What a workspace needs for all the work so far.
    [[nodiscard]] std::size_t workspace_peak();

  private:
    friend class Scratch;

    std::shared_ptr<Device> device_;
    std::unique_ptr<Queue> queue_;
    std::mutex mutex_;
    std::vector<Buffer> free_; // scratch buffers nobody holds
    ScratchPlaces places_;
    unsigned char* workspace_ = nullptr;
    std::size_t workspace_bytes_ = 0;
};

} // namespace mp
