// SPDX-License-Identifier: Apache-2.0
// Advance: what one short step of something under way came to. Whoever drives it knows from it whether to go on,
// to look again later, or to stop.
#pragma once

#include <cstdint>

#include "comm/communicator.hpp"

namespace mp::comm {

enum class Advance : int8_t {
    waits, // for other ranks
    moved, // and there is more to do here
    done,
};

// Tests a request. Throws what it failed with.
[[nodiscard]] inline Advance step(CommRequest& request) {
    const int64_t before = request.moved_bytes();
    bool done = false;
    check(request.test(&done));
    if (done) {
        return Advance::done;
    }
    return request.moved_bytes() != before ? Advance::moved : Advance::waits;
}

} // namespace mp::comm
