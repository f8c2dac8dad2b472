// SPDX-License-Identifier: Apache-2.0
// HostLane: the way of arrays between a device and host memory, on a queue of its own, so that the work of other queues goes on
// while they travel. PinnedBuffer: host memory that the device copies from and to by itself, where it knows how.
#pragma once

#include <atomic>
#include <memory>

#include "runtime/stream.hpp"

namespace mp {

class PinnedBuffer {
  public:
    PinnedBuffer() = default;
    // Contents are undefined. Waits for the work of `device`.
    PinnedBuffer(const Stream& host, const Stream& device, std::size_t bytes);
    ~PinnedBuffer();
    PinnedBuffer(PinnedBuffer&& other) noexcept { swap(other); }
    PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
        swap(other);
        return *this;
    }
    PinnedBuffer(const PinnedBuffer&) = delete;
    PinnedBuffer& operator=(const PinnedBuffer&) = delete;
    [[nodiscard]] unsigned char* data() const noexcept { return buffer_.as<unsigned char>(); }
    [[nodiscard]] std::size_t bytes() const noexcept { return buffer_.bytes(); }

  private:
    void swap(PinnedBuffer& other) noexcept;

    std::shared_ptr<Device> device_; // null: nothing to unpin
    Buffer buffer_;
};

class HostLane {
  public:
    // `own`: of the device, used by nobody else.
    HostLane(const Stream& host, std::shared_ptr<Stream> own);
    HostLane(const HostLane&) = delete;
    HostLane& operator=(const HostLane&) = delete;
    ~HostLane() { finish(); }

    [[nodiscard]] PinnedBuffer make(std::size_t bytes) const { return {host_, *own_, bytes}; }
    // What travels from now on comes after the work of `stream` so far; or what `stream` takes comes after what travels.
    void follow(Stream& stream);
    void lead(Stream& stream);
    // Between pinned memory and the device's. `stream`: the caller's, which copies where all memory is the host's.
    void to_host(const Stream& stream, void* host, const void* device, std::size_t bytes);
    void to_device(const Stream& stream, void* device, const void* host, std::size_t bytes);
    // What has left `stream` is in host memory; for its other ranks first, by their deadline.
    void wait(const Stream& stream) const;
    // Before pinned memory goes: nothing travels any more.
    void finish() const noexcept;
    // Memory of the device is given back on it once it has left.
    [[nodiscard]] Stream& stream() const noexcept { return *own_; }
    // So far; from any thread.
    [[nodiscard]] int64_t bytes_to_host() const noexcept { return bytes_to_host_; }
    [[nodiscard]] int64_t bytes_to_device() const noexcept { return bytes_to_device_; }

  private:
    void order(Stream& first, Stream& then);
    void copy(const Stream& stream, void* to, const void* from, std::size_t bytes, CopyKind kind);

    const Stream& host_;
    std::shared_ptr<Stream> own_;
    std::unique_ptr<Event> point_; // null: work is done when a call returns
    std::atomic<int64_t> bytes_to_host_{0};
    std::atomic<int64_t> bytes_to_device_{0};
};

} // namespace mp
