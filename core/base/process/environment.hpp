// SPDX-License-Identifier: Apache-2.0
// Environment variables. Every one that the library reads, it reads here.
#pragma once

#include <cstdlib>
#if defined(__linux__)
#include <sys/auxv.h>
#endif

namespace mp::process {

// Whether this program runs with more rights than its caller (setuid, setgid, file capabilities), who chose the environment.
// Libraries of others read it by themselves, also to load code that it names.
inline bool has_more_rights_than_caller() noexcept {
#if defined(__linux__)
    return getauxval(AT_SECURE) != 0;
#else
    return false;
#endif
}

// Null where the variable is not set, and in a program with more rights than its caller: several of ours name code to load.
inline const char* environment(const char* name) noexcept {
#if defined(__GLIBC__)
    return secure_getenv(name);
#else
    (void)name; // no C library we know of without it tells whether the environment can be trusted
    return nullptr;
#endif
}

} // namespace mp::process
