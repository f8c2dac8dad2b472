// SPDX-License-Identifier: Apache-2.0
// Descriptors of the library's own, never 0, 1 or 2: where a program has closed those, what it prints goes to whatever
// has their numbers.
#pragma once

#include <sys/types.h>

namespace mp::system {

// As openat, closed in programs that this process executes. -1 with errno.
int open_descriptor(int directory, const char* path, int flags, mode_t mode = 0) noexcept;
int duplicate_descriptor(int descriptor) noexcept;

} // namespace mp::system
