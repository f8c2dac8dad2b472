// SPDX-License-Identifier: Apache-2.0
// The file that holds the code of this library: a shared library, or the program where it is linked into one.
#pragma once

#include <string>
#include <vector>

namespace mp::system {

// The directories that it lies in, from the root and without the caller's words: where the kernel found it, and before
// that where the loader did, if links lead from there. Empty where the system does not tell.
std::vector<std::string> own_directories();
// Whether the system's loader would look for a library below the directory that the process is in.
bool loader_uses_current_directory() noexcept;

} // namespace mp::system
