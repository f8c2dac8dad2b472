// SPDX-License-Identifier: Apache-2.0
// Step and micro-batch of a descriptor, as the counter of random bits holds them.
#pragma once

#include "numerics/philox.hpp"
#include "status/status.hpp"

namespace mp::capi {

template <class Desc> uint64_t random_time(const Desc& desc, const char* call) {
    if (desc.microbatch < 0 || static_cast<uint32_t>(desc.microbatch) >= numerics::kMicrobatchEnd ||
        desc.step >= numerics::kStepEnd) {
        fail(Code::invalid_argument,
             "%s: microbatch is %d and step is %llu; they must be from 0 to %u and below 2^48",
             call, static_cast<int>(desc.microbatch), static_cast<unsigned long long>(desc.step),
             numerics::kMicrobatchEnd - 1);
    }
    return numerics::sr_time(desc.step, static_cast<uint32_t>(desc.microbatch));
}

} // namespace mp::capi
