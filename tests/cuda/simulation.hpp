// SPDX-License-Identifier: Apache-2.0
// The CUDA module on the simulated device, and what its tests share.
#pragma once

#include <cstdio>
#include <dlfcn.h>

#include "../backends/gemm_case.hpp"
#include "../backends/launch.hpp"
#include "simulated/runtime.hpp"

namespace mp::test {

using simulated::Control;

template <typename Function> Function* symbol(const char* name) {
    void* module = dlopen(std::getenv("MIXEDPREC_CUBLASLT_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    auto* function = module != nullptr ? reinterpret_cast<Function*>(dlsym(module, name)) : nullptr;
    if (function == nullptr) {
        std::fprintf(stderr, "the simulated module has no %s\n", name);
        std::abort();
    }
    return function;
}

inline Control& control() {
    static Control& instance = *symbol<Control*()>("mp_simulated_control")();
    return instance;
}

inline const Backend& backend() {
    static const Backend& instance = load_module("cuda");
    return instance;
}

// What must come back to zero.
struct Outstanding {
    int64_t allocations = control().allocations;
    int64_t pinned = control().pinned;
    int64_t streams = control().streams;
    int64_t events = control().events;
    int64_t handles = control().handles;
    bool operator==(const Outstanding&) const = default;
};

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
