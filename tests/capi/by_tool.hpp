// SPDX-License-Identifier: Apache-2.0
// The command `mixedprec`, where this build has it.
#pragma once

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace mp_test {

// False where this build has no tool.
inline bool by_tool(const std::string& arguments) {
    const char* tool = std::getenv("MP_TEST_COMMAND");
    if (tool == nullptr) {
        return false;
    }
    EXPECT_EQ(std::system((std::string(tool) + " " + arguments + " > /dev/null").c_str()), 0)
        << arguments;
    return true;
}

} // namespace mp_test
