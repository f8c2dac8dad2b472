// SPDX-License-Identifier: Apache-2.0
#include "comm/all_max.hpp"

#include "comm/arrival.hpp"
#include "comm/wire_buffer.hpp"

namespace mp::comm {

void all_reduce_max(Communicator& comm, Stream& stream, uint32_t* words, int64_t count,
                    CallOptions options) {
    WireBuffer message(stream, comm, words, count * static_cast<int64_t>(sizeof(uint32_t)));
    message.to_wire();
    options.queue = &stream.queue();
    CommRequest request;
    check(
        comm.begin(MaxU32{reinterpret_cast<uint32_t*>(message.wire()), count}, options, &request));
    await_arrival(stream, comm, request);
    message.from_wire();
}

} // namespace mp::comm
