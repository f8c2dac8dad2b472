// SPDX-License-Identifier: Apache-2.0
#include "device/stream.hpp"

#include <algorithm>

namespace mp {

Stream::Stream(std::shared_ptr<Device> device, void* native) : device_(std::move(device)) {
    Queue* queue = nullptr;
    check(device_->create_queue(native, &queue));
    queue_.reset(queue);
}

void Stream::set_workspace(void* memory, std::size_t bytes) {
    sync(); // work may still use the old one
    const std::lock_guard lock(mutex_);
    free_.clear();
    workspace_ = static_cast<unsigned char*>(memory);
    workspace_bytes_ = bytes;
}

std::size_t Stream::workspace_peak() {
    const std::lock_guard lock(mutex_);
    return places_.peak();
}

std::size_t ScratchPlaces::take(std::size_t bytes) {
    const std::size_t size =
        (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
    std::size_t begin = 0;
    auto next = taken_.begin();
    while (next != taken_.end() && next->begin - begin < size) {
        begin = next->end;
        ++next;
    }
    taken_.insert(next, {begin, begin + size});
    peak_ = std::max(peak_, begin + size);
    return begin;
}

void ScratchPlaces::give(std::size_t offset) noexcept {
    taken_.erase(std::find_if(taken_.begin(), taken_.end(),
                              [&](const Range& range) { return range.begin == offset; }));
}

Scratch::Scratch(Stream& stream, std::size_t bytes) : stream_(stream.shared_from_this()) {
    auto& free = stream_->free_; // smallest first
    {
        const std::lock_guard lock(stream_->mutex_);
        place_ = stream_->places_.take(bytes);
        if (stream_->workspace_ != nullptr) {
            if (place_ + bytes > stream_->workspace_bytes_) {
                stream_->places_.give(place_);
                fail(Code::out_of_memory,
                     "queue: its workspace has %zu bytes, but %zu are needed; see "
                     "mp_queue_get_workspace_peak",
                     stream_->workspace_bytes_, place_ + bytes);
            }
            data_ = stream_->workspace_ + place_;
            return;
        }
        const auto fit = std::find_if(free.begin(), free.end(),
                                      [&](const Buffer& b) { return b.bytes() >= bytes; });
        if (fit != free.end()) {
            buffer_ = std::move(*fit);
            data_ = buffer_.data();
            free.erase(fit);
            return;
        }
    }
    try {
        buffer_ = Buffer(stream_->device_, bytes);
    } catch (...) {
        const std::lock_guard lock(stream_->mutex_);
        stream_->places_.give(place_);
        throw;
    }
    data_ = buffer_.data();
    // It stands in for the largest that was too small, so that buffers grow instead of piling up.
    const std::lock_guard lock(stream_->mutex_);
    if (!free.empty() && free.back().bytes() < bytes) {
        free.pop_back();
    }
}

Scratch::~Scratch() {
    const std::lock_guard lock(stream_->mutex_);
    stream_->places_.give(place_);
    if (buffer_.data() == nullptr || stream_->workspace_ != nullptr) {
        return; // of a workspace, or of a time before it
    }
    auto& free = stream_->free_;
    const auto place = std::find_if(free.begin(), free.end(),
                                    [&](const Buffer& b) { return b.bytes() >= buffer_.bytes(); });
    try {
        free.insert(place, std::move(buffer_));
    } catch (...) { // no memory for the list: the buffer is simply released
    }
}

} // namespace mp
