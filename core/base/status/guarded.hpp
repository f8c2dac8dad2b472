// SPDX-License-Identifier: Apache-2.0
// For functions that may not throw: what their body throws becomes the status that they return.
#pragma once

#include "status/status.hpp"

namespace mp {

// `what` there was no memory for, in the case of an exception that is no Error.
template <typename Body> Status guarded(const char* what, Body&& body) noexcept {
    try {
        return body();
    } catch (const Error& error) {
        return error.status();
    } catch (const std::exception&) {
        return Status::error(Code::out_of_memory, "no memory for %s", what);
    }
}

} // namespace mp
