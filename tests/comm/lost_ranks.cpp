// SPDX-License-Identifier: Apache-2.0
// A rank is lost at every message that it begins in its life, in every phase: it leaves, or it stands still. The others
// have a status in time, the states of a committed step and a checkpoint that is whole or none.
// Among the tests every fifth message; MP_LOST_FULL=1: every one, with a count.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "life.hpp"

namespace mp::test {
namespace {

constexpr int32_t kRanks = 3;
constexpr int64_t kDeadlineMs = 400;

enum class Fate { leaves, stands_still };

struct Loss {
    Fate fate = Fate::leaves;
    int32_t victim = 0;
    std::string phase;
    int32_t message = 0;
};

// The victim's end, known to the others by nothing but what they do not get.
Status end_of(Fate fate, const std::atomic<int32_t>& alive) {
    while (fate == Fate::stands_still && alive.load() > 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return Status::error(Code::internal, "this rank is lost");
}

void lose(const Loss& loss, const Training& run, const Undisturbed& undisturbed) {
    const TemporaryFolder folder;
    std::atomic<int32_t> alive{kRanks};
    std::vector<int64_t> steps(kRanks, -1);
    auto transports = comm::make_thread_transports({kRanks, 0});
    std::vector<std::thread> threads;
    for (int32_t rank = 0; rank < kRanks; ++rank) {
        threads.emplace_back([&, rank] {
            const auto i = static_cast<std::size_t>(rank);
            const auto doom = std::make_shared<Doom>();
            if (rank == loss.victim) {
                doom->phase = loss.phase;
                doom->message = loss.message;
                doom->strike = [&] { return end_of(loss.fate, alive); };
            }
            {
                Life life(run,
                          std::make_shared<Communicator>(
                              std::make_unique<DoomedTransport>(std::move(transports[i]), doom),
                              kDeadlineMs),
                          folder.path(), doom);
                life.live();
                steps[i] = life.step();
                if (rank == loss.victim) {
                    EXPECT_TRUE(doom->has_struck);
                } else {
                    EXPECT_EQ(wrong_with(life, undisturbed.states[i], kDeadlineMs), "")
                        << "rank " << rank;
                }
            }
            --alive;
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    const auto [first, last] = std::minmax_element(steps.begin(), steps.end());
    EXPECT_LE(*last - *first, 1) << "ranks are apart";
    EXPECT_EQ(wrong_with_folder(folder.path(), run, loss.phase != "load"), "");
}

class LostRanks : public testing::TestWithParam<int32_t> {};

TEST_P(LostRanks, AtEveryMessage) {
    const Training run = training_of_life(GetParam());
    const Undisturbed undisturbed = live_undisturbed(kRanks, run);
    const bool is_full = std::getenv("MP_LOST_FULL") != nullptr;
    int32_t number = 0;
    int32_t losses = 0;
    for (const int32_t victim : {0, kRanks - 1}) {
        const auto& messages = undisturbed.messages[static_cast<std::size_t>(victim)];
        ASSERT_GE(messages.size(), 6U) << "the undisturbed life did not come to its end";
        for (const auto& [phase, count] : messages) {
            for (int32_t message = 0; message < count; ++message) {
                for (const Fate fate : {Fate::leaves, Fate::stands_still}) {
                    if (!is_full && number++ % 5 != 0) {
                        continue;
                    }
                    SCOPED_TRACE("rank " + std::to_string(victim) + " at message " +
                                 std::to_string(message) + " of " + phase +
                                 (fate == Fate::leaves ? " leaves" : " stands still"));
                    lose({fate, victim, phase, message}, run, undisturbed);
                    ++losses;
                }
            }
        }
    }
    std::printf("stage %d: %d losses\n", GetParam(), losses);
}

INSTANTIATE_TEST_SUITE_P(Stages, LostRanks, testing::Values(0, 1, 2, 3));

} // namespace
} // namespace mp::test
