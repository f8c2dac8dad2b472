// SPDX-License-Identifier: Apache-2.0
// The largest of all ranks' words, in device memory.
#pragma once

#include "comm/communicator.hpp"
#include "runtime/stream.hpp"

namespace mp::comm {

// In their place, in the order of the stream; where the device does not order messages it waits. `options`: its queue is set.
void all_reduce_max(Communicator& comm, Stream& stream, uint32_t* words, int64_t count,
                    CallOptions options);

} // namespace mp::comm
