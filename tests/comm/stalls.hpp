// SPDX-License-Identifier: Apache-2.0
// A shared machine may stand still for a second, and every deadline with it. A test that waits for deadlines allows for
// that, or tries again; how long a wait takes by the clock alone decides nothing.
#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <new>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace mp_test {

// From its making on, by a process that naps and sees when it was woken late. (A thread would be in the way of tests that
// fork.)
class StallWatch {
  public:
    StallWatch() {
        void* page =
            mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) {
            throw std::bad_alloc();
        }
        seen_ = new (page) Seen;
        watcher_ = fork();
        if (watcher_ == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            watch();
        }
    }
    ~StallWatch() {
        if (watcher_ > 0) {
            (void)kill(watcher_, SIGKILL);
            (void)waitpid(watcher_, nullptr, 0);
        }
        (void)munmap(seen_, sizeof(Seen));
    }
    StallWatch(const StallWatch&) = delete;
    StallWatch& operator=(const StallWatch&) = delete;

    // How long the machine has stood still so far.
    [[nodiscard]] int64_t stalled_ms() const {
        const int64_t naps = seen_->naps; // one that is under way may not have been counted yet
        while (watcher_ > 0 && seen_->naps < naps + 2) {
            (void)usleep(kNapUs);
        }
        return seen_->late_us / 1000;
    }

  private:
    static constexpr int64_t kNapUs = 5000;
    static constexpr int64_t kLateUs = 50'000; // less is how systems are

    struct Seen {
        std::atomic<int64_t> naps{0};
        std::atomic<int64_t> late_us{0};
    };

    [[noreturn]] void watch() {
        using Clock = std::chrono::steady_clock;
        for (auto begin = Clock::now();; ++seen_->naps) {
            (void)usleep(kNapUs);
            const auto now = Clock::now();
            const int64_t us =
                std::chrono::duration_cast<std::chrono::microseconds>(now - begin).count();
            seen_->late_us += us > kLateUs ? us : 0;
            begin = now;
        }
    }

    Seen* seen_ = nullptr;
    pid_t watcher_ = -1;
};

// What `attempt` returns when the machine did not stand still for `limit_ms` in it; in the end, of the twentieth time.
template <typename Attempt> auto undisturbed_by_stalls(int64_t limit_ms, Attempt&& attempt) {
    for (int left = 20;; --left) {
        const StallWatch watch;
        auto result = attempt();
        if (left == 1 || watch.stalled_ms() < limit_ms) {
            return result;
        }
    }
}

} // namespace mp_test
