// SPDX-License-Identifier: Apache-2.0
// A fuzz target takes any bytes and must neither crash nor break a promise of its parser. libFuzzer calls it where
// the build has it (scripts/fuzz.sh); otherwise main.cpp does, with seeds and a fixed series of mutations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace mp::fuzz {

// What ends the program where a promise is broken.
inline void require(bool holds) {
    if (!holds) {
        std::abort();
    }
}
inline void require(bool holds, const std::string& promise) {
    if (!holds) {
        (void)std::fprintf(stderr, "broken promise: %s\n", promise.c_str());
        std::abort();
    }
}

} // namespace mp::fuzz

// libFuzzer gives the name.
extern "C" int LLVMFuzzerTestOneInput( // NOLINT(readability-identifier-naming)
    const uint8_t* data, std::size_t size);

// What mutations start from.
std::vector<std::string> fuzz_seeds();
