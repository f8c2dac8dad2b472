// SPDX-License-Identifier: Apache-2.0
#include "runtime/stream.hpp"

#include <utility>

namespace mp {

Stream::Stream(std::shared_ptr<Device> device, void* native) : device_(std::move(device)) {
    Queue* queue = nullptr;
    check(device_->create_queue(native, &queue));
    queue_.reset(queue);
    followed_ = Followed::make(*device_);
    scratch_ = std::make_unique<QueueScratch>(device_, *queue_);
}

Scratch::Scratch(Stream& stream, std::size_t bytes) : stream_(stream.shared_from_this()) {
    check(stream_->scratch_->take(bytes, &data_));
}

Scratch::~Scratch() { stream_->scratch_->give(data_); }

} // namespace mp
