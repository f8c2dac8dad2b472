// SPDX-License-Identifier: Apache-2.0
// Advance: what one short step of something under way came to. Whoever drives it knows from it whether to go on,
// to look again later, or to stop.
#pragma once

#include <cstdint>

namespace mp::comm {

enum class Advance : int8_t {
    waits, // for other ranks
    moved, // and there is more to do here
    done,
};

} // namespace mp::comm
