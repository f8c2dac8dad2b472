// SPDX-License-Identifier: Apache-2.0
// The machine for blocks as a device with the hand-written kernels as its candidates.
#pragma once

#include "device/backend.hpp"

namespace mp::blocks {

const Backend& backend();

// What kernels may touch of an array's memory, and what it is called. write: nobody has written it yet.
enum class Use { read, write };
void use_array(const char* name, const void* data, std::size_t bytes, Use how);

} // namespace mp::blocks
