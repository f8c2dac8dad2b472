// SPDX-License-Identifier: Apache-2.0
#include "host/resources/thread_pool.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include <unistd.h>

#include "host/resources/openmp_neighbours.hpp"
#include "process/own_thread.hpp"

namespace mp::backends::host {

namespace {

// Looks at memory that another thread is about to change before a thread goes to sleep: some ten microseconds, which is
// what waking it costs. Between the operations of a step threads so stay awake, and while the caller computes they sleep.
constexpr int kLooks = 500;

void pause_processor() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

template <class Condition> bool comes_true_soon(const Condition& condition) noexcept {
    for (int look = 0; look < kLooks; ++look) {
        if (condition()) {
            return true;
        }
        pause_processor();
    }
    return false;
}

} // namespace

// The threads of one process. A child of fork() has none of them, and makes a team of its own.
class ThreadPool::Team {
  public:
    explicit Team(int32_t threads)
        : shares_(static_cast<std::size_t>(threads)), wakes_(shares_.size()) {
        workers_.reserve(shares_.size());
    }
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;
    ~Team() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            ends_ = true;
            number_.fetch_add(1, std::memory_order_release);
        }
        for (std::size_t i = 0; i < workers_.size(); ++i) {
            wakes_[i + 1].notify_one();
            workers_[i].join();
        }
    }

    [[nodiscard]] bool is_of_this_process() const noexcept { return process_ == getpid(); }

    // With fewer where the system gives no more.
    void start_workers() noexcept {
        try {
            while (workers_.size() + 1 < shares_.size()) {
                const auto thread = static_cast<int32_t>(workers_.size()) + 1;
                workers_.push_back(
                    process::start_thread("mixedprec", [this, thread] { work(thread); }));
            }
        } catch (
            const std::
                exception&) { // NOLINT(bugprone-empty-catch): the loop is done by those there are
        }
    }

    Status bind(const std::vector<int32_t>& cpus) noexcept {
        Status first;
        for (std::size_t i = 0; i < workers_.size() && first.ok(); ++i) {
            first = topology::bind_thread(workers_[i].native_handle(), cpus[i + 1]);
        }
        return first;
    }

    // By tasks of the caller's parallel loop, one for each share.
    void run_by(const ParallelTable& parallel, const Loop& loop) noexcept {
        deal_out(loop);
        loop_ = loop;
        const auto task = [](void* data, int32_t index) {
            const process::DefaultFloats floats; // on a thread of the caller's
            auto& team = *static_cast<Team*>(data);
            team.take_part(team.loop_, index);
        };
        {
            const process::CallerFloats floats;
            parallel.run(loop.threads, task, this, parallel.payload);
        }
        take_part(loop, 0); // what a loop that calls no task has left
    }

    void run(const Loop& loop) noexcept {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            loop_ = loop;
            deal_out(loop);
            is_open_ = true;
            number_.fetch_add(1, std::memory_order_release);
        }
        for (std::size_t i = 1; i < static_cast<std::size_t>(loop.threads); ++i) {
            wakes_[i].notify_one();
        }
        take_part(loop, 0);
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            is_open_ = false; // who has not come yet finds nothing to do
        }
        if (!comes_true_soon([this] { return inside_.load(std::memory_order_acquire) == 0; })) {
            std::unique_lock<std::mutex> lock(mutex_);
            done_.wait(lock, [this] { return inside_.load(std::memory_order_acquire) == 0; });
        }
    }

  private:
    // Neighbouring iterations, of which whoever comes takes the next.
    struct alignas(64) Share {
        std::atomic<int64_t> next{0};
        int64_t end = 0;
    };

    void deal_out(const Loop& loop) noexcept {
        for (int64_t i = 0; i < loop.threads; ++i) {
            Share& share = shares_[static_cast<std::size_t>(i)];
            share.next.store(loop.count * i / loop.threads, std::memory_order_relaxed);
            share.end = loop.count * (i + 1) / loop.threads;
        }
    }

    // The own share first, then what is left of the others'.
    void take_part(const Loop& loop, int32_t thread) noexcept {
        for (int32_t k = 0; k < loop.threads; ++k) {
            Share& share = shares_[static_cast<std::size_t>((thread + k) % loop.threads)];
            while (share.next.load(std::memory_order_relaxed) < share.end) {
                const int64_t begin = share.next.fetch_add(loop.grain, std::memory_order_relaxed);
                if (begin < share.end) {
                    loop.call(loop.context, begin, std::min(begin + loop.grain, share.end), thread);
                }
            }
        }
    }

    void work(int32_t thread) noexcept {
        std::condition_variable& wake = wakes_[static_cast<std::size_t>(thread)];
        uint64_t seen = 0;
        while (true) {
            (void)comes_true_soon([&] { return number_.load(std::memory_order_acquire) != seen; });
            Loop loop;
            {
                std::unique_lock<std::mutex> lock(mutex_);
                wake.wait(lock, [&] {
                    return ends_ || (is_open_ && thread < loop_.threads &&
                                     number_.load(std::memory_order_relaxed) != seen);
                });
                if (ends_) {
                    return;
                }
                seen = number_.load(std::memory_order_relaxed);
                loop = loop_;
                inside_.fetch_add(1, std::memory_order_relaxed);
            }
            take_part(loop, thread);
            const std::lock_guard<std::mutex> lock(mutex_);
            if (inside_.fetch_sub(1, std::memory_order_release) == 1) {
                done_.notify_one();
            }
        }
    }

    const pid_t process_ = getpid();
    std::mutex mutex_;
    std::condition_variable done_; // nobody is inside
    std::atomic<uint64_t> number_{0};
    std::atomic<int32_t> inside_{0};
    bool is_open_ = false;
    bool ends_ = false;
    Loop loop_{};
    std::vector<Share> shares_;
    std::vector<std::condition_variable> wakes_; // there is work for this thread
    std::vector<std::thread> workers_;           // the first is thread 1
};

ThreadPool::ThreadPool(int32_t threads, const ParallelTable& parallel) noexcept
    : threads_(threads), parallel_(parallel) {}

ThreadPool::~ThreadPool() {
    if (team_ != nullptr && !team_->is_of_this_process()) {
        (void)team_.release(); // the threads of another process cannot be joined
    }
}

// Null without memory for one.
ThreadPool::Team* ThreadPool::team() noexcept {
    if (team_ != nullptr && team_->is_of_this_process()) {
        return team_.get();
    }
    (void)team_.release();
    try {
        team_ = std::make_unique<Team>(threads_);
        if (parallel_.run == nullptr) {
            team_->start_workers();
        }
        if (cpus_ != nullptr) {
            (void)team_->bind(*cpus_);
        }
    } catch (const std::bad_alloc&) { // NOLINT(bugprone-empty-catch)
    }
    return team_.get();
}

Status ThreadPool::bind(const std::vector<int32_t>& cpus) noexcept {
    cpus_ = &cpus;
    Team* const all = threads_ > 1 ? team() : nullptr;
    return all != nullptr ? all->bind(cpus) : Status();
}

void ThreadPool::run(const Loop& loop) noexcept {
    if (is_busy_.exchange(true, std::memory_order_acquire)) {
        loop.call(loop.context, 0, loop.count, 0);
        return;
    }
    if (Team* const all = team(); all != nullptr && parallel_.run != nullptr) {
        all->run_by(parallel_, loop);
    } else if (all != nullptr) {
        notify_openmp_neighbours(threads_);
        all->run(loop);
    } else {
        loop.call(loop.context, 0, loop.count, 0);
    }
    is_busy_.store(false, std::memory_order_release);
}

} // namespace mp::backends::host
