// SPDX-License-Identifier: Apache-2.0
// The program's signals, kept out of code that must not be interrupted by a handler.
#pragma once

#include <csignal>

#include <pthread.h>

namespace mp::process {

// Signals wait for the calling thread until the end of a scope, and never reach a thread that is begun in it: it inherits the
// mask. Faults do. They are the thread's own, and where they are blocked the kernel ends the process past the program's handlers,
// which collectors and sanitizers live on.
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

} // namespace mp::process
