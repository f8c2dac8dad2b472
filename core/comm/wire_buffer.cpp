// SPDX-License-Identifier: Apache-2.0
#include "comm/wire_buffer.hpp"

#include "comm/arrival.hpp"

namespace mp::comm {

WireBuffer::WireBuffer(Stream& stream, const Communicator& comm, int64_t bytes)
    : stream_(stream.shared_from_this()),
      own_(std::make_unique<Scratch>(stream, static_cast<std::size_t>(bytes))),
      device_(static_cast<char*>(own_->data())), bytes_(bytes),
      is_ordered_(is_ordered(stream, comm)),
      is_staged_(!stream.device().is_host() && !comm.caps().device_memory) {
    staged_.resize(is_staged_ ? static_cast<std::size_t>(bytes) : 0);
}

WireBuffer::WireBuffer(Stream& stream, const Communicator& comm, void* data, int64_t bytes)
    : stream_(stream.shared_from_this()), device_(static_cast<char*>(data)), bytes_(bytes),
      is_ordered_(is_ordered(stream, comm)),
      is_staged_(!stream.device().is_host() && !comm.caps().device_memory) {
    staged_.resize(is_staged_ ? static_cast<std::size_t>(bytes) : 0);
}

void WireBuffer::to_wire() {
    if (is_staged_ && bytes_ > 0) {
        stream_->copy(staged_.data(), device_, static_cast<std::size_t>(bytes_),
                      CopyKind::device_to_host);
    }
    if (!is_ordered_) {
        stream_->sync();
    }
}

void WireBuffer::from_wire() {
    if (is_staged_ && bytes_ > 0) {
        stream_->copy(device_, staged_.data(), static_cast<std::size_t>(bytes_),
                      CopyKind::host_to_device);
    }
}

} // namespace mp::comm
