// SPDX-License-Identifier: Apache-2.0
// A fuzz target takes any bytes and must neither crash nor break a promise of its parser. libFuzzer calls it where
// the build has it (scripts/fuzz.sh); otherwise main.cpp does, with seeds and a fixed series of mutations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// libFuzzer gives the name.
extern "C" int LLVMFuzzerTestOneInput( // NOLINT(readability-identifier-naming)
    const uint8_t* data, std::size_t size);

// What mutations start from.
std::vector<std::string> fuzz_seeds();
