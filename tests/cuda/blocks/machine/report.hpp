// SPDX-License-Identifier: Apache-2.0
// What the machine for blocks saw of a launch: faults, and how its memory was used. Counts are of the kernel's text as it is
// written: of instructions of the host's compiler, which moves none across a store or a barrier.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace mp::blocks {

enum class Fault {
    configuration, // no such launch
    out_of_bounds, // outside of every array; the launch ends
    misaligned,    // no multiple of its size; the launch ends
    read_only,     // a variable or constant of the program is written; the launch ends
    unwritten,     // read before anybody wrote it
    race,          // two threads, one of them writes, nothing orders them
    divergent,     // a barrier or a warp's operation that not all reach; the launch ends
};
const char* fault_name(Fault fault);

struct Finding {
    Fault fault;
    uint32_t block = 0;
    uint32_t thread = 0;
    std::string text; // a sentence: who, what, where
    int64_t times = 1;
};

// Requests of warps: what the lanes of a warp ask for by one instruction.
struct Traffic {
    int64_t requests = 0;
    int64_t sectors = 0; // of 32 bytes, that they touch
    int64_t ideal = 0;   // as many as their bytes would fill
    // Each once in a pass: what a first-level cache leaves of them that keeps no more than that.
    int64_t distinct = 0;

    bool operator==(const Traffic&) const = default;
};

// Of shared memory: 32 banks of 4 bytes. Lanes are served in turns: all at once, 16 where each wants 8 bytes, 8 where 16.
struct Banks {
    int64_t requests = 0;
    int64_t cycles = 0; // a turn takes as many as there are words of one bank in it
    int64_t ideal = 0;  // one a turn
    int64_t worst = 0;  // the most of a turn: so-many-way conflict

    bool operator==(const Banks&) const = default;
};

struct Counters {
    Traffic loads;
    Traffic stores;
    Banks shared;
    int64_t atomics = 0; // of single lanes, in device memory
    // The most that a warp loads from device memory in a pass: before it stores, waits, or comes to a load for the second
    // time. When a loaded value is first used cannot be seen here; so this is what may be in flight at most, if the
    // compiler does not mix turns of a loop.
    int64_t pass_bytes = 0;

    bool operator==(const Counters&) const = default;
    void add(const Counters& other);
};

struct Report {
    std::string kernel;
    uint32_t blocks = 0;
    uint32_t threads = 0;
    std::vector<Finding> findings; // each once for an instruction
    Counters counters;

    [[nodiscard]] std::string text() const;
};

} // namespace mp::blocks
