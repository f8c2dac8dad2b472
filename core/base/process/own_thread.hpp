// SPDX-License-Identifier: Apache-2.0
// Threads of the library's own, which leave the program's signals to the program.
#pragma once

#include <csignal>
#include <thread>
#include <utility>

#include <pthread.h>

#include "process/float_environment.hpp"

namespace mp::process {

// No signal reaches a thread that is begun meanwhile: it inherits this mask. Faults do. They are the thread's own, and where they
// are blocked the kernel ends the process past the program's handlers, which collectors and sanitizers live on.
class SignalsBlocked {
  public:
    SignalsBlocked() noexcept {
        sigset_t all;
        (void)sigfillset(&all);
        for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) {
            (void)sigdelset(&all, fault);
        }
        (void)pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;
    ~SignalsBlocked() { (void)pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  private:
    sigset_t before_{};
};

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
