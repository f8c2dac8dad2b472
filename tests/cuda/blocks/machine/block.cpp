// SPDX-License-Identifier: Apache-2.0
#include "block.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>

#include "machine.hpp"

dim3 threadIdx;
dim3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace mp::blocks {

Block* running_block = nullptr;

namespace {

constexpr std::size_t kStack = std::size_t{128} << 10; // of a fiber

std::string place_text(const Place& place) {
    const std::string file = place.file;
    return file.substr(file.rfind('/') + 1) + ":" + std::to_string(place.line);
}

bool is_same(const Place& a, const Place& b) {
    return a.line == b.line && std::strcmp(a.file, b.file) == 0;
}

} // namespace

const Range& fiber_stacks() {
    static const Range stacks = [] {
        const std::size_t bytes = kMostThreads * kStack;
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) {
            std::perror("the machine for blocks maps its fibers' stacks");
            std::abort();
        }
        return Range{reinterpret_cast<uintptr_t>(memory), bytes};
    }();
    return stacks;
}

Block::Block(const Launch& launch, Report& report)
    : launch_(launch), checks_(launch, report), report_(report), threads_(launch.threads),
      requests_((launch.threads + kWarp - 1) / kWarp) {}

bool Block::run(uint32_t block) {
    blockIdx = dim3(block);
    blockDim = dim3(launch_.threads);
    gridDim = dim3(launch_.blocks);
    checks_.begin_block();
    for (uint32_t i = 0; i < launch_.threads; ++i) {
        Thread& thread = threads_[i];
        thread.index = i;
        thread.state = Thread::State::ready;
        thread.callers.clear();
        (void)getcontext(&thread.context);
        thread.context.uc_stack.ss_sp = reinterpret_cast<void*>(fiber_stacks().begin + i * kStack);
        thread.context.uc_stack.ss_size = kStack;
        thread.context.uc_link = nullptr;
        makecontext(&thread.context, &Block::begin_thread, 0);
    }
    running_block = this;
    while (run_warps()) {
    }
    running_block = nullptr;
    for (Requests& requests : requests_) {
        requests.count(report_.counters);
    }
    return !is_stopped_;
}

void Block::begin_thread() {
    Block& block = *running_block;
    block.launch_.enter(block.launch_.parameters);
    block.wait(Thread::State::ended, Place::here());
}

void Block::resume(Thread& thread) {
    current_ = &thread;
    threadIdx = dim3(thread.index, 0, 0);
    (void)swapcontext(&scheduler_, &thread.context);
    current_ = nullptr;
}

void Block::wait(Thread::State state, const Place& place) {
    Thread& thread = *current_;
    thread.state = state;
    thread.place = place;
    (void)swapcontext(&thread.context, &scheduler_);
}

void Block::stop_launch() {
    is_stopped_ = true;
    wait(Thread::State::ended, Place::here());
    std::abort(); // nobody resumes it
}

// Runs what can run. False when the block is over.
bool Block::run_warps() {
    bool any_ran = false;
    for (Thread& thread : threads_) {
        if (thread.state == Thread::State::ready) {
            resume(thread);
            any_ran = true;
            if (is_stopped_) {
                return false;
            }
        }
    }
    for (unsigned warp = 0; warp < requests_.size(); ++warp) {
        any_ran = meet_in_warp(warp) || any_ran;
        if (is_stopped_) {
            return false;
        }
    }
    if (any_ran) {
        return true;
    }
    const auto ended = std::count_if(threads_.begin(), threads_.end(), [](const Thread& thread) {
        return thread.state == Thread::State::ended;
    });
    return ended != static_cast<std::ptrdiff_t>(threads_.size()) && !explain_standstill();
}

Thread* Block::lane_of(unsigned warp, unsigned lane) {
    const std::size_t index = std::size_t{warp} * kWarp + lane;
    return index < threads_.size() ? &threads_[index] : nullptr;
}

// Whether lanes that wait for each other were all there, and go on.
bool Block::meet_in_warp(unsigned warp) {
    bool any = false;
    for (unsigned first = 0; first < kWarp; ++first) {
        Thread* const asking = lane_of(warp, first);
        if (asking == nullptr || asking->state != Thread::State::at_warp) {
            continue;
        }
        const WarpCall call = asking->call;
        std::array<WarpCall, kWarp> calls;
        bool all = true;
        for (unsigned lane = 0; lane < kWarp; ++lane) {
            const Thread* const other = lane_of(warp, lane);
            if ((call.mask >> lane & 1U) == 0) {
                continue;
            }
            all = all && other != nullptr && other->state == Thread::State::at_warp &&
                  other->call.op == call.op && other->call.mask == call.mask;
            if (all) {
                calls[lane] = other->call;
            }
        }
        if (!all) {
            continue;
        }
        for (unsigned lane = 0; lane < kWarp; ++lane) {
            if ((call.mask >> lane & 1U) == 0) {
                continue;
            }
            Thread& thread = *lane_of(warp, lane);
            const WarpResult result = warp_result(calls, lane);
            if (!result.has_source && !is_stopped_) {
                checks_.report(Fault::divergent, {blockIdx.x, thread.index, 0},
                               "shuffles from a lane that is not in its mask, at " +
                                   place_text(thread.place));
                is_stopped_ = true;
            }
            thread.result = result.value;
            thread.state = Thread::State::ready;
        }
        if (call.op == WarpOp::sync) {
            checks_.sync_warp(warp, call.mask);
        }
        if (call.mask == kWholeWarp) {
            requests_[warp].count(report_.counters);
        }
        any = true;
    }
    return any;
}

void Block::meet_all() {
    const auto count = std::count_if(threads_.begin(), threads_.end(),
                                     [](const Thread& thread) { return thread.predicate; });
    for (Thread& thread : threads_) {
        thread.result = static_cast<uint64_t>(count);
        thread.state = Thread::State::ready;
    }
    checks_.pass_barrier();
    for (Requests& requests : requests_) {
        requests.count(report_.counters);
    }
}

// All wait or have ended. False where it is at one barrier, which they pass; otherwise says who waits for whom.
bool Block::explain_standstill() {
    const Thread* waiting = nullptr;
    for (const Thread& thread : threads_) {
        if (waiting == nullptr && thread.state != Thread::State::ended) {
            waiting = &thread;
        }
    }
    const bool is_barrier = waiting->state == Thread::State::at_barrier;
    const auto other = std::find_if(threads_.begin(), threads_.end(), [&](const Thread& thread) {
        if (is_barrier) {
            return thread.state != Thread::State::at_barrier ||
                   !is_same(thread.place, waiting->place);
        }
        return thread.index / kWarp == waiting->index / kWarp &&
               (waiting->call.mask >> thread.index % kWarp & 1U) != 0 &&
               (thread.state != Thread::State::at_warp || thread.call.op != waiting->call.op ||
                thread.call.mask != waiting->call.mask);
    });
    if (is_barrier && other == threads_.end()) {
        meet_all();
        return false;
    }
    checks_.report(
        Fault::divergent, {blockIdx.x, waiting->index, 0},
        what_it_does(*waiting) +
            (other == threads_.end()
                 ? ", whose mask has lanes that the block does not have"
                 : "; thread " + std::to_string(other->index) + " " + what_it_does(*other)));
    is_stopped_ = true;
    return true;
}

std::string Block::what_it_does(const Thread& thread) const {
    switch (thread.state) {
    case Thread::State::at_barrier:
        return "waits at the barrier " + place_text(thread.place);
    case Thread::State::at_warp: {
        char mask[16];
        (void)std::snprintf(mask, sizeof mask, "%#x", thread.call.mask);
        return "waits for the lanes " + std::string(mask) + " at " + place_text(thread.place);
    }
    case Thread::State::ended:
        return "has ended";
    case Thread::State::ready:
        break;
    }
    return "runs";
}

int Block::barrier(bool predicate, const Place& place) {
    current_->predicate = predicate;
    wait(Thread::State::at_barrier, place);
    return static_cast<int>(current_->result);
}

uint64_t Block::warp(const WarpCall& call, const Place& place) {
    if ((call.mask >> current_->index % kWarp & 1U) == 0) {
        checks_.report(Fault::divergent, {blockIdx.x, current_->index, 0},
                       "is not in the mask that it gives, at " + place_text(place));
        stop_launch();
    }
    current_->call = call;
    wait(Thread::State::at_warp, place);
    return current_->result;
}

void Block::access(Access how, uintptr_t address, std::size_t bytes, uintptr_t instruction) {
    if (current_ == nullptr) {
        return;
    }
    const Accessor by{blockIdx.x, current_->index, instruction};
    const Checks::Space space = checks_.access(by, how, address, bytes);
    if (space == Checks::Space::forbidden) {
        stop_launch();
    }
    if (space != Checks::Space::own) {
        const uint64_t caller = current_->callers.empty() ? 0 : current_->callers.back();
        requests_[by.warp()].record(
            by.lane(), {how, space == Checks::Space::shared, address, bytes, instruction ^ caller});
    }
}

void Block::enter_function(uintptr_t caller) {
    if (current_ != nullptr) {
        const uint64_t above = current_->callers.empty() ? 0 : current_->callers.back();
        current_->callers.push_back((above ^ caller) * 0x9e3779b97f4a7c15U);
    }
}

void Block::leave_function() {
    if (current_ != nullptr && !current_->callers.empty()) {
        current_->callers.pop_back();
    }
}

} // namespace mp::blocks
