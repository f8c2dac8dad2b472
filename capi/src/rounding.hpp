// SPDX-License-Identifier: Apache-2.0
// The rounding that a struct of the caller's asks for.
#pragma once

#include "mixedprec/tensor.h"
#include "numerics/rounding.hpp"
#include "status/status.hpp"

namespace mp::capi {

// Step and micro-batch, as the counter of random bits holds them.
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

// Of a struct with MP_ROUND_* and what random bits follow from.
template <class Desc> numerics::Rounding rounding_of(const Desc& desc, const char* call) {
    if (desc.rounding != MP_ROUND_NEAREST && desc.rounding != MP_ROUND_STOCHASTIC) {
        fail(Code::invalid_argument,
             "%s: rounding is %d; it must be MP_ROUND_NEAREST or MP_ROUND_STOCHASTIC", call,
             desc.rounding);
    }
    numerics::Rounding rounding = {desc.rounding == MP_ROUND_STOCHASTIC, desc.seed, desc.uid,
                                   random_time(desc, call), 0};
    if constexpr (requires { desc.first_element; }) {
        if (desc.first_element < 0) {
            fail(Code::invalid_argument, "%s: first_element is %lld; it must be >= 0", call,
                 static_cast<long long>(desc.first_element));
        }
        rounding.first_element = desc.first_element;
    }
    return rounding;
}

} // namespace mp::capi
