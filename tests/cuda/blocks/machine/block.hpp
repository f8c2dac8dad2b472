// SPDX-License-Identifier: Apache-2.0
// One block: a fiber for each thread, run until all wait for each other or have ended.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <ucontext.h>

#include "checks.hpp"
#include "kernel_calls.hpp"
#include "requests.hpp"
#include "warp.hpp"

namespace mp::blocks {

struct Thread {
    enum class State { ready, at_barrier, at_warp, ended };
    State state = State::ready;
    uint32_t index = 0;
    ucontext_t context = {};
    Place place;                   // where it waits
    bool predicate = false;        // of a barrier
    WarpCall call;                 // of a warp's operation
    uint64_t result = 0;           // of either
    std::vector<uint64_t> callers; // of the function that it is in, as one number for each
};

class Block {
  public:
    Block(const Launch& launch, Report& report);
    // False where a thread cannot go on; what is left of the block and the launch is not run.
    bool run(uint32_t block);

    // ---- by the thread that runs ----
    int barrier(bool predicate, const Place& place);
    uint64_t warp(const WarpCall& call, const Place& place);
    void access(Access how, uintptr_t address, std::size_t bytes, uintptr_t instruction);
    void enter_function(uintptr_t caller);
    void leave_function();
    [[noreturn]] void stop_launch();

  private:
    static void begin_thread();
    void resume(Thread& thread);
    void wait(Thread::State state, const Place& place);
    bool run_warps();
    bool meet_in_warp(unsigned warp);
    void meet_all();
    bool explain_standstill();
    [[nodiscard]] std::string what_it_does(const Thread& thread) const;
    [[nodiscard]] Thread* lane_of(unsigned warp, unsigned lane);

    const Launch& launch_;
    Checks checks_;
    Report& report_;
    std::vector<Thread> threads_;
    std::vector<Requests> requests_; // of each warp
    Thread* current_ = nullptr;
    ucontext_t scheduler_ = {};
    bool is_stopped_ = false;
};

// The block that runs; null outside of kernels.
extern Block* running_block;

// The fibers' stacks: what lies there is a thread's own.
const Range& fiber_stacks();

} // namespace mp::blocks
