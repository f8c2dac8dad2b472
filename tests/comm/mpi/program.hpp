// SPDX-License-Identifier: Apache-2.0
// What the cases of one rank under mpirun share. A case returns what was wrong, or nothing.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "../faulty_transport.hpp"
#include "comm/communicator.hpp"
#include "core/core_context.hpp"

namespace mp::test {

struct Settings {
    std::string folder;
    int64_t deadline_ms = 0;
    std::vector<std::string> more; // arguments of the case
};
using Case = std::string (*)(const Settings&);

inline int64_t now_ms() { return monotonic_ns() / 1000000; }

// This rank's communicator over MPI: all ranks of the launcher, or those of the caller's MPI_Comm; one with a fault where a
// fault is given.
std::unique_ptr<comm::Communicator> open(const Settings& settings, const void* native = nullptr,
                                         std::shared_ptr<PlannedFault> fault = nullptr);

// "" where the status is one of those and its text has this in it.
std::string expect(const Status& status, std::initializer_list<Code> codes, const char* text);

// This process stands still, and is killed when the others are through.
[[noreturn]] void stop_for_good(const Settings& settings);

// Of training.cpp: sharded optimizers, and the thread that moves their gradients on.
std::string zero(const Settings& settings);
std::string zero_invariant(const Settings& settings);
std::string zero_disagrees(const Settings& settings);
std::string zero_serialized(const Settings& settings);
std::string zero_killed(const Settings& settings);
std::string zero_stopped(const Settings& settings);
std::string hybrid(const Settings& settings);

// Of lost.cpp: the last rank is lost at a chosen message of its scenario. `more`: kill, exit or stop; the stage; the phase, or
// "scenario"; the number of the message in it; the ranks of a group, 0 for one group.
std::string lost(const Settings& settings);
// Writes "PHASE COUNT" for each phase of the last of four ranks in the stage more[0].
std::string messages(const Settings& settings);

} // namespace mp::test
