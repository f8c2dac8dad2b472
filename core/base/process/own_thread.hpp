// SPDX-License-Identifier: Apache-2.0
// Threads of the library's own, which leave the program's signals to the program.
#pragma once

#include <thread>
#include <utility>

#include <pthread.h>

#include "process/float_environment.hpp"
#include "process/signals_blocked.hpp"

namespace mp::process {

// A thread for body(), which does not throw. `name`, for debuggers: 15 characters at most. The caller's functions run in it
// under the floating-point environment of the call that begins it. Throws std::system_error where there is none.
template <class Body> std::thread start_thread(const char* name, Body body) {
    const FloatEnvironment of_caller = DefaultFloats::of_caller();
    const SignalsBlocked blocked;
    std::thread thread([of_caller, body = std::move(body)] {
        of_caller.write();
        const DefaultFloats floats;
        body();
    });
    (void)pthread_setname_np(thread.native_handle(), name);
    return thread;
}

} // namespace mp::process
