// SPDX-License-Identifier: Apache-2.0
// What is between ranks goes into no graph: a replay would move this rank's part without the others, and a capture that has
// begun to move it could only be given up, with the communicator.
#pragma once

#include "runtime/stream.hpp"

namespace mp::comm {

inline constexpr const char* kAsksRanks = "comm: other ranks are to be asked";

// bad_state in a capture, before anything is begun. No queue: ok.
[[nodiscard]] inline Status refuse_capture(Queue* queue) noexcept {
    return queue == nullptr ? Status() : queue->refuse_capture(kAsksRanks);
}
inline void refuse_capture(const Stream& stream) { check(refuse_capture(&stream.queue())); }

} // namespace mp::comm
