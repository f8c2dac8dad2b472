// SPDX-License-Identifier: Apache-2.0
// The host's parallel loop, on threads of its own or by a loop of the caller's. Its own sleep when there is nothing to do,
// and a loop never waits for one that has not woken yet: the calling thread then does its share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/backend.hpp"
#include "dtype/divide.hpp"
#include "status/status.hpp"
#include "topology/topology.hpp"

namespace mp::backends::host {

class ThreadPool {
  public:
    // `threads`: with the calling one. The others are started by the first loop that has work for them; with `parallel`
    // there are none, and so many tasks are given to that.
    explicit ThreadPool(int32_t threads, const ParallelTable& parallel = {}) noexcept;
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;
    ~ThreadPool();

    [[nodiscard]] int32_t threads() const noexcept { return threads_; }

    // Starts the threads now and binds thread i to the i-th CPU until it ends. Not the calling thread, number 0, which is
    // the program's: threads it starts later would inherit its one core. Returns the first failure. `cpus`, threads() of
    // them, stays.
    Status bind(const std::vector<int32_t>& cpus) noexcept;

    // body(i) for 0 <= i < count, in any order and by any thread, and returns when all are done. Neighbours go to the same
    // thread, the same ones in every loop of as many, until a thread has nothing left and takes over from another; `grain`
    // neighbours are taken at a time. Where another thread is inside a loop of this pool, and in loops inside loops, the
    // calling thread does all.
    template <class Body> void for_each(int64_t count, const Body& body, int64_t grain = 1) {
        for_each_on(
            count, [&body](int64_t i, int32_t /*thread*/) { body(i); }, grain);
    }
    // body(i, thread), 0 <= thread < threads() and < count: two calls of a loop at once have different ones.
    template <class Body> void for_each_on(int64_t count, const Body& body, int64_t grain = 1) {
        const auto call = [](const void* context, int64_t begin, int64_t end, int32_t thread) {
            for (int64_t i = begin; i < end; ++i) {
                (*static_cast<const Body*>(context))(i, thread);
            }
        };
        if (count <= grain || threads_ == 1) {
            call(&body, 0, count, 0);
        } else {
            const int64_t parts = divide_up(count, grain);
            run({call, &body, count, grain,
                 parts < threads_ ? static_cast<int32_t>(parts) : threads_});
        }
    }

  private:
    struct Loop {
        void (*call)(const void* context, int64_t begin, int64_t end, int32_t thread);
        const void* context;
        int64_t count;
        int64_t grain;
        int32_t threads; // that may take part
    };
    class Team;

    void run(const Loop& loop) noexcept;
    Team* team() noexcept;

    const int32_t threads_;
    const ParallelTable parallel_;
    const std::vector<int32_t>* cpus_ = nullptr; // where threads are bound
    std::atomic<bool> is_busy_{false};
    std::unique_ptr<Team> team_;
};

} // namespace mp::backends::host
