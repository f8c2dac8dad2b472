// SPDX-License-Identifier: Apache-2.0
// The one candidate this backend has for each kind of operation; each is defined in a file of its own.
#pragma once

#include "device/backend.hpp"

namespace mp::backends::reference {

inline constexpr const char* kName = "reference";

extern const Candidate kCast;
extern const Candidate kAmax;
extern const Candidate kColumnSum;
extern const Candidate kGemm;
extern const Candidate kGradStats;
extern const Candidate kOptimizerPrepare;
extern const Candidate kOptimizerUpdate;
extern const Candidate kScalerUpdate;
extern const Candidate kQuantize;
extern const Candidate kDequantize;
extern const Candidate kDelayedUpdate;
extern const Candidate kSumParts;

} // namespace mp::backends::reference
