// SPDX-License-Identifier: Apache-2.0
// Progress: a thread that moves on what an optimizer has under way between its ranks while the caller computes.
//
// Everything that is under way belongs to whoever has the lock, so nothing below needs one of its own and no communicator ever
// sees two threads at once. A call of the library has the lock for as long as it lasts and moves things on itself;
// between calls the thread has it, for one short step at a time. The thread begins nothing: the order of messages
// is that of the calls. While it waits for other ranks it sleeps between two looks; when nothing is under way it sleeps
// until the next call is over.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "comm/advance.hpp"

namespace mp::comm {

// Messages (buckets, gathers) since the beginning. Read by any thread.
struct MessageCounts {
    std::atomic<int64_t> begun{0};
    std::atomic<int64_t> finished{0};
    std::atomic<int64_t> finished_by_thread{0};
};

class Progress {
  public:
    // One short step for all that is under way; `done` where there is nothing. It throws nothing: what fails is kept where
    // the next call finds it.
    using Step = std::function<comm::Advance()>;

    Progress() = default;
    ~Progress() { stop(); }
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    // False where the system has no thread left.
    bool start(Step step);
    // Ends the thread, which is at most one step away.
    void stop() noexcept;
    [[nodiscard]] bool is_running() const noexcept { return thread_.joinable(); }

    // Held by a call. Does not nest.
    class Lock {
      public:
        explicit Lock(Progress& progress);
        ~Lock();
        Lock(const Lock&) = delete;
        Lock& operator=(const Lock&) = delete;

      private:
        Progress& progress_;
    };

  private:
    void run();

    std::mutex mutex_;
    std::condition_variable changes_;
    std::atomic<int32_t> callers_{0}; // that have the lock or want it: the thread gives way to them
    uint64_t calls_ = 0;              // that are over
    bool is_ending_ = false;
    Step step_;
    std::thread thread_;
};

} // namespace mp::comm
