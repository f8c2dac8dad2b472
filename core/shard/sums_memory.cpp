// SPDX-License-Identifier: Apache-2.0
#include "shard/sums_memory.hpp"

#include <cstring>

namespace mp::shard {

SumsMemory::SumsMemory(Stream& stream, const HostLane* lane, std::size_t bytes) {
    if (bytes == 0) {
        return;
    }
    if (lane != nullptr) {
        on_host_ = lane->make(bytes);
        std::memset(on_host_.data(), 0, bytes);
    } else {
        on_device_ = stream.allocate(bytes);
        stream.zero(on_device_.data(), bytes);
    }
}

} // namespace mp::shard
