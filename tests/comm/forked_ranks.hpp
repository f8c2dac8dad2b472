// SPDX-License-Identifier: Apache-2.0
// Ranks as processes, and what they report to their parent. Whatever they do, they end with the object.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace mp_test {

inline int64_t now_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// `Report` is told byte by byte, with the rank's number in `rank`.
template <typename Report> class ForkedRanks {
  public:
    // A rank's whole scenario is `live(rank, tell)`; it calls `tell(report)` as often as it likes.
    template <typename Live> ForkedRanks(int32_t count, Live&& live) {
        EXPECT_EQ(pipe(pipe_.data()), 0);
        for (int32_t rank = 0; rank < count; ++rank) {
            const pid_t child = fork();
            if (child == 0) {
                (void)close(pipe_[0]);
                live(rank, [this](const Report& report) {
                    const Message message{report, testing::Test::HasFailure()};
                    (void)!write(pipe_[1], &message, sizeof message);
                });
                _exit(0);
            }
            ranks_.push_back(child);
        }
        (void)close(pipe_[1]);
        (void)fcntl(pipe_[0], F_SETFL, O_NONBLOCK);
    }
    ~ForkedRanks() {
        (void)close(pipe_[0]);
        for (const pid_t rank : ranks_) {
            (void)kill(rank, SIGKILL);
            (void)waitpid(rank, nullptr, 0);
        }
    }
    ForkedRanks(const ForkedRanks&) = delete;
    ForkedRanks& operator=(const ForkedRanks&) = delete;

    // So many reports, or those that came in twenty seconds.
    std::vector<Report> hear(std::size_t count) {
        std::vector<Report> reports;
        for (const int64_t end = now_us() + 20'000'000; now_us() < end && reports.size() < count;) {
            Message message;
            if (read(pipe_[0], &message, sizeof message) == static_cast<ssize_t>(sizeof message)) {
                EXPECT_FALSE(message.has_failed) << "rank " << message.report.rank;
                reports.push_back(message.report);
            } else {
                (void)usleep(500);
            }
        }
        return reports;
    }

    void signal(int32_t rank, int number) {
        (void)kill(ranks_[static_cast<std::size_t>(rank)], number);
    }

  private:
    struct Message {
        Report report;
        bool has_failed = false; // a check of the rank's own
    };

    std::array<int, 2> pipe_{};
    std::vector<pid_t> ranks_;
};

} // namespace mp_test
