// SPDX-License-Identifier: Apache-2.0
// Arrival: what a request brings is there for all that a stream takes from now on. The host has seen it, or, where the transport
// moves device memory, the stream comes after it by the device's own order, and nobody waits. Then the stream keeps the request,
// and waits for it before it waits for its own work. A stream follows only what it needs now: what it takes later waits, too.
#pragma once

#include "comm/advance.hpp"
#include "runtime/stream.hpp"

namespace mp::comm {

// Whether the work of `stream` and the messages of `comm` are ordered by the device.
[[nodiscard]] inline bool is_ordered(const Stream& stream, const Communicator& comm) noexcept {
    return !stream.device().is_host() && comm.caps().device_memory;
}

// Throws what the request has failed with. Who can wait a while looks at it by step(), in advance.hpp.
void await_arrival(Stream& stream, const Communicator& comm, CommRequest& request);
// Before memory is used by another thread's stream, or by the host.
inline void sync_unordered(Stream& stream, const Communicator& comm) {
    if (!is_ordered(stream, comm)) {
        stream.sync();
    }
}

} // namespace mp::comm
