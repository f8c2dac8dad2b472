// SPDX-License-Identifier: Apache-2.0
// Which machine this is, so that ranks find out who shares one.
#pragma once

#include <cstdint>

namespace mp::system {

// One number for this machine and boot. May throw for lack of memory.
uint64_t machine_hash();

} // namespace mp::system
