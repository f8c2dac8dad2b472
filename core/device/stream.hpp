// SPDX-License-Identifier: Apache-2.0
// Stream: a device's queue together with the device and with scratch memory that lives in queue order.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "device/buffer.hpp"
#include "interface/backend.hpp"

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
    [[nodiscard]] void* data() const noexcept { return buffer_.data(); }

  private:
    std::shared_ptr<Stream> stream_;
    Buffer buffer_;
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
    }

  private:
    friend class Scratch;

    std::shared_ptr<Device> device_;
    std::unique_ptr<Queue> queue_;
    std::mutex mutex_;
    std::vector<Buffer> free_; // scratch buffers nobody holds
};

} // namespace mp
