// SPDX-License-Identifier: Apache-2.0
// The one candidate this backend has for each kind of operation; each is defined in a file of its own.
#pragma once

#include "device/backend.hpp"

namespace mp::backends::reference {

inline constexpr const char* kName = "reference";

#define X(name, desc, candidate) extern const Candidate candidate;
#include "device/op_kinds.def"
#undef X

} // namespace mp::backends::reference
