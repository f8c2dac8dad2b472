// SPDX-License-Identifier: Apache-2.0
// For functions that may not throw: what their body throws becomes the status that they return.
#pragma once

#include <exception>
#include <new>

#include "status/status.hpp"

namespace mp {

// `what` there was no memory for, in the case of bad_alloc.
template <typename Body> Status guarded(const char* what, Body&& body) noexcept {
    try {
        return body();
    } catch (const Error& error) {
        return error.status();
    } catch (const std::bad_alloc&) {
        return Status::error(Code::out_of_memory, "no memory for %s", what);
    } catch (const std::exception& error) {
        return Status::error(Code::internal, "internal error: %s; please report it", error.what());
    }
}

} // namespace mp
