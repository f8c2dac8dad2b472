// SPDX-License-Identifier: Apache-2.0
// Functions of the caller's: they run under the caller's floating-point environment, and what they return is a status of ours.
#pragma once

#include <string_view>

#include "mixedprec/status.h"
#include "process/float_environment.hpp"
#include "status/status.hpp"

namespace mp::capi {

template <typename Call> mp_status call_callers(const Call& call) {
    const process::CallerFloats floats;
    return call();
}

// Of a status that is no success. A number that is no failure of ours stays one of the caller's.
inline Code failure_code(mp_status returned) noexcept {
    const bool is_known =
        returned < 0 && std::string_view(mp_status_string(returned)) != "MP_STATUS_UNKNOWN";
    return is_known ? static_cast<Code>(returned) : Code::callback_failed;
}

} // namespace mp::capi
