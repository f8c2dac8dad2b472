// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target without libFuzzer: its seeds, all their prefixes, and a fixed series of mutations.
//
// usage: fuzz_<name> [MUTATIONS]     an input that ends the program is written to fuzz_<name>.crash
//        fuzz_<name> FILE            that input alone
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <unistd.h>

#include "fuzz/target.hpp"

namespace {

std::atomic<const std::string*> input = nullptr; // that is tried now
std::string crash_file;

// Whatever may still be done in this state is done: the program ends here anyway. Of several threads the first writes.
void keep_input(int signal) {
    if (const std::string* text = input.exchange(nullptr); text != nullptr) {
        std::ofstream(crash_file, std::ios::binary) << *text;
        (void)std::fprintf(stderr, "the input is in %s\n", crash_file.c_str());
    } else {
        (void)::sleep(1);
    }
    (void)std::signal(signal, SIG_DFL);
    (void)std::raise(signal);
}

void try_one(const std::string& text) {
    input = &text;
    (void)LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

// One of the usual: a flipped bit, another byte, a piece cut, doubled or taken from another seed.
void mutate(std::string& text, const std::vector<std::string>& seeds, std::mt19937_64& random) {
    const auto below = [&random](std::size_t n) {
        return static_cast<std::size_t>(random() % (n == 0 ? 1 : n));
    };
    const std::size_t at = below(text.size() + 1);
    const std::size_t length = below(text.size() - at + 1);
    switch (below(6)) {
    case 0:
        if (at < text.size()) {
            text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        }
        break;
    case 1:
        text.insert(at, 1, static_cast<char>(below(256)));
        break;
    case 2:
        text.erase(at, length);
        break;
    case 3:
        text.insert(at, text.substr(at, length));
        break;
    case 4:
        text.insert(at, std::to_string(static_cast<int64_t>(random())));
        break;
    default: {
        const std::string& other = seeds[below(seeds.size())];
        const std::size_t from = below(other.size());
        text.replace(at, length, other.substr(from, below(other.size() - from + 1)));
        break;
    }
    }
    constexpr std::size_t kLongest = 1 << 16;
    text.resize(text.size() < kLongest ? text.size() : kLongest);
}

} // namespace

int main(int argc, char** argv) {
    crash_file = std::string(argv[0]) + ".crash";
    crash_file.erase(0, crash_file.rfind('/') + 1);
    for (const int signal : {SIGABRT, SIGSEGV, SIGFPE}) {
        (void)std::signal(signal, keep_input);
    }
    if (argc > 1 && ::access(argv[1], R_OK) == 0) {
        std::ifstream file(argv[1], std::ios::binary);
        try_one({std::istreambuf_iterator<char>(file), {}});
        return 0;
    }
    const long mutations = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 20000;
    const std::vector<std::string> seeds = fuzz_seeds();
    long inputs = 0;
    for (const std::string& seed : seeds) {
        for (std::size_t length = 0; length <= seed.size(); ++length, ++inputs) {
            try_one(seed.substr(0, length));
        }
    }
    std::mt19937_64 random(20261121);
    std::string text;
    for (long i = 0; i < mutations; ++i, ++inputs) {
        if (i % 8 == 0) {
            text = seeds[static_cast<std::size_t>(random() % seeds.size())];
        }
        mutate(text, seeds, random);
        try_one(text);
    }
    std::printf("%ld inputs\n", inputs);
    return 0;
}
