// SPDX-License-Identifier: Apache-2.0
// Where tests/fixtures lies: where the environment says, for programs that were taken to another machine, or where it was built.
#pragma once

#include <cstdlib>
#include <string>

namespace mp_test {

// MP_FIXTURE_DIR is an environment variable, and a macro of every test's.
inline std::string fixture_path(const std::string& file) {
    const char* folder = std::getenv("MP_FIXTURE_DIR");
    return std::string(folder != nullptr ? folder : MP_FIXTURE_DIR) + "/" + file;
}

} // namespace mp_test
