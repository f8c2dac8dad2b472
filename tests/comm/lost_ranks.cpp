// SPDX-License-Identifier: Apache-2.0
// A rank is lost at every message that it begins in its scenario, in every phase: it leaves, or it stands still. The others
// have a status in time, the states of a committed step and a checkpoint that is whole or none.
// Among the tests every fifth message; MP_LOST_FULL=1: every one, with a count.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "scenario.hpp"

namespace mp::test {
namespace {

constexpr int64_t kDeadlineMs = 400;
constexpr int32_t kLivesAtOnce = 6; // most of their time they wait for the deadline

enum class Fate { leaves, stands_still };

struct Layout {
    int32_t ranks;
    int32_t stage;
    int32_t shard_ranks; // of a group; 0: one group
};

struct Loss {
    Fate fate = Fate::leaves;
    int32_t victim = 0;
    std::string phase;
    int32_t message = 0;
};

std::string text_of(const Loss& loss) {
    return "rank " + std::to_string(loss.victim) + " at message " + std::to_string(loss.message) +
           " of " + loss.phase + (loss.fate == Fate::leaves ? " leaves" : " stands still");
}

// Stands still until the rank is lost: on a busy machine no other rank's slowness ends a scenario before that.
class ClockOfLoss {
  public:
    void start() { started_ns_ = monotonic_ns(); }
    [[nodiscard]] int64_t now_ns() const {
        const int64_t started_ns = started_ns_;
        return started_ns == 0 ? 0 : monotonic_ns() - started_ns;
    }

  private:
    std::atomic<int64_t> started_ns_{0};
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
    const auto ranks = static_cast<int32_t>(undisturbed.states.size());
    std::atomic<int32_t> alive{ranks};
    ClockOfLoss clock;
    std::vector<int64_t> steps(undisturbed.states.size(), -1);
    auto transports = comm::make_thread_transports({ranks, 0});
    std::vector<std::thread> threads;
    for (int32_t rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            const auto i = static_cast<std::size_t>(rank);
            const auto fault = std::make_shared<PlannedFault>();
            fault->clock = [&clock] { return clock.now_ns(); };
            if (rank == loss.victim) {
                fault->phase = loss.phase;
                fault->message = loss.message;
                fault->strike = [&] {
                    clock.start();
                    return end_of(loss.fate, alive);
                };
            }
            {
                Scenario scenario(
                    run,
                    std::make_shared<Communicator>(
                        std::make_unique<FaultyTransport>(std::move(transports[i]), fault),
                        kDeadlineMs),
                    folder.path(), fault);
                scenario.run();
                steps[i] = scenario.step();
                if (rank == loss.victim) {
                    EXPECT_TRUE(fault->has_struck);
                } else {
                    const bool may_finish = may_finish_without(loss.victim, rank, run);
                    EXPECT_EQ(wrong_with(scenario, undisturbed.states[i], kDeadlineMs, may_finish),
                              "")
                        << "rank " << rank << ", where " << text_of(loss);
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

void lose_each(const std::vector<Loss>& losses, const Training& run,
               const Undisturbed& undisturbed) {
    std::atomic<std::size_t> next{0};
    std::vector<std::thread> threads;
    for (int32_t i = 0; i < kLivesAtOnce; ++i) {
        threads.emplace_back([&] {
            for (std::size_t k = next++; k < losses.size(); k = next++) {
                SCOPED_TRACE(text_of(losses[k])); // of what threads do not say
                lose(losses[k], run, undisturbed);
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

class LostRanks : public testing::TestWithParam<Layout> {};

TEST_P(LostRanks, AtEveryMessage) {
    const auto [ranks, stage, shard_ranks] = GetParam();
    Training run = training_of_scenario(stage);
    run.sharding.shard_ranks = shard_ranks;
    const Undisturbed undisturbed = live_undisturbed(ranks, run);
    // The second level's messages are begun when the first is over, in whatever phase that is.
    const bool has_groups = shard_ranks > 0;
    const bool is_full = std::getenv("MP_LOST_FULL") != nullptr;
    int32_t number = 0;
    std::vector<Loss> losses;
    for (const int32_t victim : {0, ranks - 1}) {
        const auto& messages = undisturbed.messages[static_cast<std::size_t>(victim)];
        ASSERT_GE(messages.size(), 6U) << "the undisturbed scenario did not come to its end";
        for (const auto& [phase, count] : messages) {
            if ((phase == kWholeScenario) != has_groups) {
                continue;
            }
            for (int32_t message = 0; message < count; ++message) {
                for (const Fate fate : {Fate::leaves, Fate::stands_still}) {
                    if (is_full || number++ % 5 == 0) {
                        losses.push_back({fate, victim, phase, message});
                    }
                }
            }
        }
    }
    lose_each(losses, run, undisturbed);
    std::printf("%d ranks, stage %d, groups of %d: %zu losses\n", ranks, stage, shard_ranks,
                losses.size());
}

INSTANTIATE_TEST_SUITE_P(Layouts, LostRanks,
                         testing::Values(Layout{3, 0, 0}, Layout{3, 1, 0}, Layout{3, 2, 0},
                                         Layout{3, 3, 0}, Layout{4, 2, 2}));

} // namespace
} // namespace mp::test
