// SPDX-License-Identifier: Apache-2.0
// The program's signals are for its own threads.
#pragma once

#include <csignal>

#include <pthread.h>

namespace mp::system {

// Blocks all signals in the calling thread while it lives. A thread that is begun meanwhile inherits that.
class SignalsBlocked {
  public:
    SignalsBlocked() noexcept {
        sigset_t all;
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;
    ~SignalsBlocked() { (void)pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  private:
    sigset_t before_{};
};

} // namespace mp::system
