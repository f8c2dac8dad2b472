// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of the test: run(n, body) calls body(ranks) on each of n of them.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/ranks.hpp"

namespace mp::test {

class Meeting {
  public:
    explicit Meeting(int32_t size) : texts_(static_cast<std::size_t>(size)), size_(size) {}

    std::vector<std::string> gather(int32_t rank, const std::string& mine) {
        std::unique_lock<std::mutex> lock(mutex_);
        const int64_t round = round_;
        texts_[static_cast<std::size_t>(rank)] = mine;
        if (++here_ == size_) {
            here_ = 0;
            result_ = texts_;
            ++round_;
            all_.notify_all();
        } else {
            all_.wait(lock, [&] { return round_ != round; });
        }
        return result_;
    }
    [[nodiscard]] int32_t size() const noexcept { return size_; }

  private:
    std::mutex mutex_;
    std::condition_variable all_;
    std::vector<std::string> texts_;
    std::vector<std::string> result_;
    int32_t size_;
    int32_t here_ = 0;
    int64_t round_ = 0;
};

class ThreadRanks final : public checkpoint::Ranks {
  public:
    ThreadRanks(Meeting& meeting, int32_t rank) : meeting_(meeting), rank_(rank) {}
    [[nodiscard]] int32_t rank() const noexcept override { return rank_; }
    [[nodiscard]] int32_t size() const noexcept override { return meeting_.size(); }
    std::vector<std::string> gather(const std::string& mine) override {
        return meeting_.gather(rank_, mine);
    }
    std::string broadcast(const std::string& text) override { return gather(text)[0]; }

  private:
    Meeting& meeting_;
    int32_t rank_;
};

// Rethrows what rank 0 threw; throws std::logic_error where one rank threw and another did not.
inline void run_ranks(int32_t size, const std::function<void(checkpoint::Ranks&)>& body) {
    Meeting meeting(size);
    std::vector<std::exception_ptr> failures(static_cast<std::size_t>(size));
    const auto run = [&](int32_t rank) {
        ThreadRanks ranks(meeting, rank);
        try {
            body(ranks);
        } catch (...) {
            failures[static_cast<std::size_t>(rank)] = std::current_exception();
        }
    };
    std::vector<std::thread> threads;
    for (int32_t rank = 1; rank < size; ++rank) {
        threads.emplace_back(run, rank);
    }
    run(0);
    for (std::thread& thread : threads) {
        thread.join();
    }
    for (const std::exception_ptr& failure : failures) {
        if ((failure == nullptr) != (failures[0] == nullptr)) {
            throw std::logic_error("some ranks failed and others did not");
        }
    }
    if (failures[0] != nullptr) {
        std::rethrow_exception(failures[0]);
    }
}

} // namespace mp::test
