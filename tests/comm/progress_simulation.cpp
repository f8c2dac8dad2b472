// SPDX-License-Identifier: Apache-2.0
// Messages that move between the calls over the simulated network, at moments that a seed chooses, with and without lost ranks.
#include <gtest/gtest.h>

#include <random>

#include "progress_training.hpp"
#include "simulation.hpp"

namespace mp::test {
namespace {

// What the thread would do, at moments that the seed chooses, while the others run or do not.
void compute(SimWorld& world, TestModel& test_model, std::mt19937_64& random) {
    for (uint64_t i = random() % 4; i > 0; --i) {
        world.yield(test_model.comm().rank());
        (void)test_model.optimizer().sharding()->progress().step();
    }
}

void take_steps(SimWorld& world, TestModel& test_model, int32_t steps, std::mt19937_64& random) {
    shard::Sharding& sharding = *test_model.optimizer().sharding();
    for (int32_t step = 0; step < steps; ++step) {
        for (std::size_t p = model().size(); p-- > 0;) {
            test_model.write_gradient(p, test_model.comm().rank(), step);
            compute(world, test_model, random);
            sharding.grad_ready(test_model.stream(), static_cast<int32_t>(p));
            compute(world, test_model, random);
        }
        test_model.optimizer().step(test_model.stream(), nullptr);
    }
}

struct SimRun {
    std::vector<Outcome> outcomes;
    std::vector<Status> statuses;
    std::vector<int64_t> steps;
};

SimRun run_seed(uint64_t seed, int32_t stage, const SimFaults& faults) {
    constexpr int32_t kRanks = 3;
    const Training run = training_of(stage);
    SimRun found{std::vector<Outcome>(kRanks), std::vector<Status>(kRanks),
                 std::vector<int64_t>(kRanks)};
    SimWorld world(kRanks, seed, faults);
    world.run(300, [&](int32_t rank, Communicator& comm) {
        const auto i = static_cast<std::size_t>(rank);
        std::mt19937_64 random(seed * 16 + static_cast<uint64_t>(rank));
        TestModel test_model(run, std::shared_ptr<Communicator>(&comm, [](Communicator*) {}));
        try {
            test_model.optimizer().shard(test_model.stream());
            take_steps(world, test_model, run.steps, random);
            found.outcomes[i] = test_model.outcome();
        } catch (const Error& error) {
            found.statuses[i] = error.status();
        }
        if (test_model.optimizer().sharding() != nullptr) {
            found.steps[i] = test_model.optimizer().tables().read_state(test_model.stream()).step;
        }
    });
    return found;
}

TEST(ProgressSimulation, EverySeedGivesTheSameBits) {
    for (const int32_t stage : {1, 2, 3}) {
        const std::vector<Outcome> expected = train(3, training_of(stage));
        for (uint64_t seed = 1; seed <= 40; ++seed) {
            SCOPED_TRACE("stage " + std::to_string(stage) + ", seed " + std::to_string(seed));
            const SimRun run = run_seed(seed, stage, {});
            for (std::size_t rank = 0; rank < expected.size(); ++rank) {
                ASSERT_TRUE(run.statuses[rank].ok()) << run.statuses[rank].text();
                expect_same(expected[rank], run.outcomes[rank]);
            }
        }
    }
}

TEST(ProgressSimulation, LostRanksAreToldAndNobodyIsAStepAhead) {
    int lost = 0;
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        SCOPED_TRACE(seed);
        SimFaults faults;
        (seed % 2 == 0 ? faults.dropped : faults.stopped) = static_cast<int32_t>(seed % 3);
        faults.after_turns = static_cast<int64_t>(10 + seed * 3);
        const SimRun run = run_seed(seed, 1, faults);
        const auto [least, most] = std::minmax_element(run.steps.begin(), run.steps.end());
        EXPECT_LE(*most - *least, seed % 2 == 0 ? 1 : 3);
        for (std::size_t rank = 0; rank < run.statuses.size(); ++rank) {
            const Code code = run.statuses[rank].code();
            const bool is_own = static_cast<int32_t>(rank) == faults.dropped;
            EXPECT_TRUE(code == Code::ok || code == Code::timeout || code == Code::peer_lost ||
                        is_own)
                << run.statuses[rank].text();
            lost += code == Code::timeout || code == Code::peer_lost ? 1 : 0;
        }
    }
    EXPECT_GT(lost, 20);
}

} // namespace
} // namespace mp::test
