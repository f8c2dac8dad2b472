// SPDX-License-Identifier: Apache-2.0
#include "comm/progress.hpp"

#include <algorithm>
#include <chrono>
#include <system_error>

#include "process/own_thread.hpp"

namespace mp::comm {
namespace {

// Between two looks while nothing comes: the first are near, and a rank that is late costs little.
constexpr std::chrono::microseconds kShortestPause{20};
constexpr std::chrono::microseconds kLongestPause{1000};

} // namespace

bool Progress::start(Step step) {
    step_ = std::move(step);
    try {
        thread_ = process::start_thread("mixedprec-ranks", [this] { run(); });
        return true;
    } catch (const std::system_error&) {
        return false;
    }
}

void Progress::stop() noexcept {
    if (is_running()) {
        {
            const Lock lock(*this); // or a thread that always finds more to do would never let go
            is_ending_ = true;
        }
        thread_.join();
    }
}

Progress::Lock::Lock(Progress& progress) : progress_(progress) {
    ++progress_.callers_;
    progress_.mutex_.lock();
}

Progress::Lock::~Lock() {
    ++progress_.calls_;
    --progress_.callers_;
    progress_.mutex_.unlock();
    progress_.changes_.notify_all();
}

void Progress::run() {
    std::unique_lock lock(mutex_);
    std::chrono::microseconds pause = kShortestPause;
    while (!is_ending_) {
        const uint64_t seen = calls_;
        const auto has_news = [&] { return is_ending_ || calls_ != seen; };
        switch (step_()) {
        case comm::Advance::moved:
            // A mutex alone would let this thread have it again at once.
            changes_.wait(lock, [&] { return is_ending_ || callers_ == 0; });
            pause = kShortestPause;
            break;
        case comm::Advance::waits:
            (void)changes_.wait_for(lock, pause, has_news);
            pause = calls_ != seen ? kShortestPause : std::min(2 * pause, kLongestPause);
            break;
        case comm::Advance::done:
            changes_.wait(lock, has_news);
            pause = kShortestPause;
            break;
        }
    }
}

} // namespace mp::comm
