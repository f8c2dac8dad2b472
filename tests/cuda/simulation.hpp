// SPDX-License-Identifier: Apache-2.0
// The CUDA module on the simulated device, and what its tests share.
#pragma once

#include "../backends/gemm_case.hpp"
#include "../backends/launch.hpp"
#include "simulated/api.hpp"

namespace mp::test {

inline const Backend& backend() {
    static const Backend& instance = load_module("cuda");
    return instance;
}

class Simulation : public ::testing::Test {
  protected:
    void TearDown() override {
        EXPECT_TRUE(before_ == Outstanding()) << "something was not given back";
        EXPECT_EQ(control().wrong_context, 0);
        EXPECT_EQ(control().misuse, 0);
    }

  private:
    Outstanding before_;
};

} // namespace mp::test
