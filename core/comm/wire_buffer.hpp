// SPDX-License-Identifier: Apache-2.0
// WireBuffer: memory that a transport takes, for a device's data.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "runtime/stream.hpp"

namespace mp::comm {

// Memory that a transport takes: the device's own, or a copy on the host where it does not take that.
class WireBuffer {
  public:
    WireBuffer(Stream& stream, const Communicator& comm, int64_t bytes);
    // In place of memory of its own: the caller's.
    WireBuffer(Stream& stream, const Communicator& comm, void* data, int64_t bytes);

    [[nodiscard]] char* device() const noexcept { return device_; }
    [[nodiscard]] char* wire() noexcept { return is_staged_ ? staged_.data() : device_; }
    void to_wire();   // waits, but where messages are ordered by the device
    void from_wire(); // enqueues

  private:
    std::shared_ptr<Stream> stream_;
    std::unique_ptr<Scratch> own_;
    char* device_ = nullptr;
    int64_t bytes_ = 0;
    bool is_ordered_ = false;
    bool is_staged_ = false;
    std::vector<char> staged_;
};

} // namespace mp::comm
