// SPDX-License-Identifier: Apache-2.0
#include "runtime/host_lane.hpp"

namespace mp {

PinnedBuffer::PinnedBuffer(const Stream& host, const Stream& device, std::size_t bytes)
    : buffer_(host.shared_device(), bytes) {
    if (bytes > 0) {
        Followed::await_all(device.device()); // to pin may wait for all its work
        check(device.device().pin(buffer_.data(), bytes));
        device_ = device.shared_device();
    }
}

PinnedBuffer::~PinnedBuffer() {
    if (device_ != nullptr) {
        Followed::await_all(*device_);
        device_->unpin(buffer_.data(), buffer_.bytes());
    }
}

void PinnedBuffer::swap(PinnedBuffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(buffer_, other.buffer_);
}

HostLane::HostLane(const Stream& host, std::shared_ptr<Stream> own)
    : host_(host), own_(std::move(own)) {
    Event* point = nullptr;
    check(own_->device().create_event(&point));
    point_.reset(point);
}

// A step that has failed leaves copies under way.
void HostLane::finish() const noexcept {
    if (point_ != nullptr) {
        Followed::await_all(own_->device());
        own_->finish();
    }
}

void HostLane::order(Stream& first, Stream& then) {
    if (point_ != nullptr) {
        check(point_->record(first.queue()));
        check(point_->wait_in(then.queue()));
        then.followed().add(first.followed().open()); // which it is behind now, too
    }
}

void HostLane::follow(Stream& stream) { order(stream, *own_); }

void HostLane::lead(Stream& stream) { order(*own_, stream); }

void HostLane::copy(const Stream& stream, void* to, const void* from, std::size_t bytes,
                    CopyKind kind) {
    if (bytes > 0) {
        (point_ != nullptr ? *own_ : stream).copy(to, from, bytes, kind);
    }
}

void HostLane::to_host(const Stream& stream, void* host, const void* device, std::size_t bytes) {
    copy(stream, host, device, bytes, CopyKind::device_to_host);
    bytes_to_host_ += static_cast<int64_t>(bytes);
}

void HostLane::to_device(const Stream& stream, void* device, const void* host, std::size_t bytes) {
    copy(stream, device, host, bytes, CopyKind::host_to_device);
    bytes_to_device_ += static_cast<int64_t>(bytes);
}

void HostLane::wait(const Stream& stream) const {
    check(stream.followed().settle());
    if (point_ != nullptr) {
        own_->sync();
    }
}

} // namespace mp
