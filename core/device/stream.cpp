// SPDX-License-Identifier: Apache-2.0
#include "device/stream.hpp"

#include <algorithm>

namespace mp {

Stream::Stream(std::shared_ptr<Device> device, void* native) : device_(std::move(device)) {
    Queue* queue = nullptr;
    check(device_->create_queue(native, &queue));
    queue_.reset(queue);
}

Scratch::Scratch(Stream& stream, std::size_t bytes) : stream_(stream.shared_from_this()) {
    auto& free = stream_->free_; // smallest first
    {
        const std::lock_guard lock(stream_->mutex_);
        const auto fit = std::find_if(free.begin(), free.end(),
                                      [&](const Buffer& b) { return b.bytes() >= bytes; });
        if (fit != free.end()) {
            buffer_ = std::move(*fit);
            free.erase(fit);
            return;
        }
    }
    buffer_ = Buffer(stream_->device_, bytes);
    // It stands in for the largest that was too small, so that buffers grow instead of piling up.
    const std::lock_guard lock(stream_->mutex_);
    if (!free.empty() && free.back().bytes() < bytes) {
        free.pop_back();
    }
}

Scratch::~Scratch() {
    const std::lock_guard lock(stream_->mutex_);
    auto& free = stream_->free_;
    const auto place = std::find_if(free.begin(), free.end(),
                                    [&](const Buffer& b) { return b.bytes() >= buffer_.bytes(); });
    try {
        free.insert(place, std::move(buffer_));
    } catch (...) { // no memory for the list: the buffer is simply released
    }
}

} // namespace mp
