// SPDX-License-Identifier: Apache-2.0
// Environment variables. Every one that the library reads, it reads here.
#pragma once

#include <cstdlib>

namespace mp::system {

// Null where the variable is not set, and in a program that runs with more rights than its caller (setuid, setgid, file
// capabilities): several of ours name code to load, and its environment is the caller's to choose.
inline const char* environment(const char* name) noexcept {
#if defined(__GLIBC__)
    return secure_getenv(name);
#else
    (void)name; // no C library we know of without it tells whether the environment can be trusted
    return nullptr;
#endif
}

} // namespace mp::system
