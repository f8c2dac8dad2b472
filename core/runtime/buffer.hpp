// SPDX-License-Identifier: Apache-2.0
// Buffer: memory of a device that is given back when its owner ends. Keeps the device open.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "device/backend.hpp"
#include "runtime/followed.hpp"

namespace mp {

class Buffer {
  public:
    Buffer() = default;

    Buffer(std::shared_ptr<Device> device, std::size_t bytes)
        : device_(std::move(device)), bytes_(bytes) {
        if (bytes_ > 0) {
            Followed::await_all(*device_); // the device may wait for all its work
            check(device_->allocate(bytes_, &data_));
        }
    }

    // Memory that this device gave already.
    static Buffer take_over(std::shared_ptr<Device> device, void* data,
                            std::size_t bytes) noexcept {
        Buffer buffer;
        buffer.device_ = std::move(device);
        buffer.data_ = data;
        buffer.bytes_ = bytes;
        return buffer;
    }

    // In the order of a queue: see Device::allocate_on().
    Buffer(std::shared_ptr<Device> device, Queue& queue, std::size_t bytes)
        : device_(std::move(device)), bytes_(bytes) {
        if (bytes_ > 0) {
            await_unless_ordered();
            check(device_->allocate_on(queue, bytes_, &data_));
            is_ordered_ = true;
        }
    }
    // Of whichever kind; there is nothing left. What is waited for and fails is told to whoever waits for its stream next.
    void release_on(Queue& queue) noexcept {
        if (data_ != nullptr) {
            await_unless_ordered();
            device_->release_on(queue, std::exchange(data_, nullptr), std::exchange(bytes_, 0));
            is_ordered_ = false;
        }
    }

    Buffer(Buffer&& other) noexcept { swap(other); }
    Buffer& operator=(Buffer&& other) noexcept {
        swap(other);
        return *this;
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    ~Buffer() {
        if (data_ == nullptr) {
            return;
        }
        Followed::await_all(*device_); // both wait for all work of the device
        if (is_ordered_) {
            device_->release_ordered(data_, bytes_);
        } else {
            device_->release(data_, bytes_);
        }
    }

    [[nodiscard]] void* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

    template <typename T> [[nodiscard]] T* as() const noexcept { return static_cast<T*>(data_); }

  private:
    // Other ranks, by their deadline, which a wait for the device has not.
    void await_unless_ordered() const noexcept {
        if (!device_->orders_memory()) {
            Followed::await_all(*device_);
        }
    }
    void swap(Buffer& other) noexcept {
        std::swap(device_, other.device_);
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        std::swap(is_ordered_, other.is_ordered_);
    }

    std::shared_ptr<Device> device_;
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
    bool is_ordered_ = false; // as allocate_on() gave it
};

} // namespace mp
