// SPDX-License-Identifier: Apache-2.0
// What moves between the calls of a sharded optimizer: buckets and gathers end while the caller makes no call, whoever moved
// them the bits are the same, and a rank that is lost or late meanwhile gives a status in the next call.
#include "comm/progress.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <random>

#include "faulty_transport.hpp"
#include "simulation.hpp"
#include "zero.hpp"

namespace mp::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPatience{20000}; // until a test gives up

// What a caller does who computes: no call of the library. False where it took too long.
bool compute_until(const std::function<bool()>& condition, milliseconds at_most = kPatience) {
    const auto until = Clock::now() + at_most;
    while (!condition() && Clock::now() < until) {
        std::this_thread::sleep_for(milliseconds(1));
    }
    return condition();
}

Training training_of(int32_t stage, const char* recipe = "bf16_pure_kahan") {
    Training run;
    run.recipe = recipe::find_preset(recipe).recipe;
    run.sharding.stage = stage;
    run.sharding.bucket_elements = 30000;
    return run;
}

const comm::MessageCounts& messages(TestModel& test_model) {
    return test_model.optimizer().sharding()->progress().messages();
}

bool all_finished(TestModel& test_model) {
    return messages(test_model).finished == messages(test_model).begun;
}

void gather_all(TestModel& test_model) {
    for (int32_t p = 0; p < test_model.optimizer().parameters().count(); ++p) {
        test_model.optimizer().sharding()->begin_gather(test_model.stream(),
                                                        std::vector<int32_t>{p});
    }
}

// Steps in which everything that can be under way is left to the thread.
std::vector<Outcome> train_patiently(int32_t ranks, const Training& run) {
    std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
    train_ranks(ranks, run, [&](TestModel& test_model) {
        test_model.optimizer().shard(test_model.stream());
        for (int32_t step = 0; step < run.steps; ++step) {
            gather_all(test_model); // for the forward pass, where there is anything to gather
            EXPECT_TRUE(compute_until([&] { return all_finished(test_model); }));
            test_model.backward(step, true);
            EXPECT_TRUE(compute_until([&] { return all_finished(test_model); }));
            test_model.optimizer().step(test_model.stream(), nullptr);
        }
        outcomes[static_cast<std::size_t>(test_model.comm().rank())] = test_model.outcome();
    });
    return outcomes;
}

// ---- the engine alone

// The thread looks once after each call and not again until the next one; a call never meets it.
TEST(Progress, SleepsWhereNothingIsUnderWay) {
    comm::Progress progress;
    std::atomic<int> looks{0};
    std::atomic<bool> is_in_call{false};
    ASSERT_TRUE(progress.start([&] {
        EXPECT_FALSE(is_in_call);
        ++looks;
        return comm::Advance::done;
    }));
    for (int call = 1; call <= 200; ++call) {
        {
            const comm::Progress::Turn turn(progress);
            is_in_call = true;
            std::this_thread::yield();
            is_in_call = false;
        }
        if (call % 50 == 0) {
            std::this_thread::sleep_for(milliseconds(5));
        }
        EXPECT_LE(looks, call + 1);
    }
    EXPECT_TRUE(compute_until([&] { return looks > 0; }));
}

TEST(Progress, GivesWayToACallBetweenTwoSteps) {
    comm::Progress progress;
    std::atomic<int64_t> steps{0};
    ASSERT_TRUE(progress.start([&] {
        ++steps;
        return comm::Advance::moved; // and it never ends
    }));
    for (int call = 0; call < 1000; ++call) {
        const comm::Progress::Turn turn(progress);
        const int64_t before = steps;
        std::this_thread::yield();
        EXPECT_EQ(steps, before);
    }
    // And to its end, though it would go on for ever.
    const int64_t before = steps;
    EXPECT_TRUE(compute_until([&] { return steps > before + 1000; }));
}

// ---- overlap

TEST(ProgressThread, FinishesBucketsWhileTheCallerMakesNoCall) {
    for (int32_t stage = 0; stage <= 3; ++stage) {
        SCOPED_TRACE(stage);
        train_ranks(3, training_of(stage), [](TestModel& test_model) {
            test_model.optimizer().shard(test_model.stream());
            EXPECT_EQ(test_model.optimizer().sharding()->progress().why_no_thread(), nullptr);
            const int64_t before = messages(test_model).begun;
            const int64_t by_thread = messages(test_model).finished_by_thread;
            test_model.backward(0, true);
            const int64_t buckets = messages(test_model).begun - before;
            EXPECT_GE(buckets, 3);
            EXPECT_TRUE(compute_until([&] { return all_finished(test_model); }));
            EXPECT_TRUE(
                compute_until([&] { return messages(test_model).finished_by_thread > by_thread; }));
            test_model.optimizer().step(test_model.stream(), nullptr);
        });
    }
}

TEST(ProgressThread, FinishesGathersWhileTheCallerMakesNoCall) {
    train_ranks(2, training_of(3), [](TestModel& test_model) {
        test_model.optimizer().shard(test_model.stream());
        const int64_t by_thread = messages(test_model).finished_by_thread;
        gather_all(test_model);
        EXPECT_TRUE(compute_until([&] {
            return messages(test_model).finished_by_thread > by_thread && all_finished(test_model);
        }));
        (void)test_model.outcome(); // waits for them: they are there
        test_model.release_all();
    });
}

// Kernels of the caller's on all its threads, of the thread on its one: at the same time. The thread sanitizer does not see
// the barriers of gcc's OpenMP, so under it the caller has one thread, too.
#if defined(__SANITIZE_THREAD__)
constexpr int32_t kCallersThreads = 1;
#else
constexpr int32_t kCallersThreads = 2;
#endif
TEST(ProgressThread, SumsBesideTheCallersKernels) {
    Training run = training_of(2, "fp32");
    run.threads = kCallersThreads;
    const std::vector<Outcome> expected = train(2, training_of(2, "fp32"));
    std::vector<Outcome> outcomes(2);
    train_ranks(2, run, [&](TestModel& test_model) {
        const Tensor from(test_model.context(), test_model.stream(), DType::fp32,
                          Shape{{1 << 16}, 1});
        const Tensor to(test_model.context(), test_model.stream(), DType::bf16,
                        Shape{{1 << 16}, 1});
        auto* values = static_cast<float*>(from.data());
        std::fill(values, values + from.count(), 1.5F);
        test_model.optimizer().shard(test_model.stream());
        for (int32_t step = 0; step < run.steps; ++step) {
            test_model.backward(step, true);
            while (!all_finished(test_model)) {
                cast_tensor(test_model.stream(), from.ref(), to.ref());
                EXPECT_EQ(static_cast<const uint16_t*>(to.data())[step], 0x3fc0);
            }
            test_model.optimizer().step(test_model.stream(), nullptr);
        }
        outcomes[static_cast<std::size_t>(test_model.comm().rank())] = test_model.outcome();
    });
    expect_same(expected[0], outcomes[0]);
    expect_same(expected[1], outcomes[1]);
}

// ---- the same bits

TEST(ProgressThread, ChangesNoBit) {
    for (const char* recipe : {"fp32", "bf16_pure_kahan", "bf16_mixed"}) {
        for (int32_t stage = 0; stage <= 3; ++stage) {
            SCOPED_TRACE(std::string(recipe) + ", stage " + std::to_string(stage));
            Training run = training_of(stage, recipe);
            run.sharding.progress_thread = false;
            const std::vector<Outcome> expected = train(3, run, true);
            run.sharding.progress_thread = true;
            const std::vector<Outcome> hasty = train(3, run, true);
            const std::vector<Outcome> patient = train_patiently(3, run);
            for (std::size_t rank = 0; rank < expected.size(); ++rank) {
                expect_same(expected[rank], hasty[rank]);
                expect_same(expected[rank], patient[rank]);
            }
        }
    }
}

TEST(ProgressThread, ChangesNoBitOfOtherWiresAndOrders) {
    for (const Format& wire : {comm::wire_format(DType::bf16),
                               comm::wire_format(DType::fp8_e4m3, comm::WireScale::block),
                               comm::wire_format(DType::fp8_e5m2, comm::WireScale::mx)}) {
        for (const comm::SumOrder order :
             {comm::SumOrder::rank, comm::SumOrder::tree, comm::SumOrder::exact}) {
            SCOPED_TRACE(comm::wire_text(wire) + ", order " + comm::order_name(order));
            Training run = training_of(1, "fp32");
            run.sharding.wire = wire;
            run.sharding.order = order;
            run.slots = run.sharding.slots = comm::has_slots(order) ? 7 : 0;
            run.sharding.progress_thread = false;
            const std::vector<Outcome> expected = train(3, run, true);
            run.sharding.progress_thread = true;
            const std::vector<Outcome> actual = train_patiently(3, run);
            for (std::size_t rank = 0; rank < expected.size(); ++rank) {
                expect_same(expected[rank], actual[rank]);
            }
        }
    }
}

// The sums of groups and of nodes are a message more, which the thread begins, and not at the same time on every rank.
TEST(ProgressThread, ChangesNoBitOfGroupsAndNodes) {
    for (const bool has_nodes : {false, true}) {
        for (int32_t stage = 0; stage <= 3; ++stage) {
            for (const comm::SumOrder order :
                 {comm::SumOrder::rank, comm::SumOrder::tree, comm::SumOrder::exact}) {
                if (has_nodes && comm::has_slots(order)) {
                    continue;
                }
                SCOPED_TRACE(std::string(has_nodes ? "nodes" : "groups") + " of 2, stage " +
                             std::to_string(stage) + ", order " + comm::order_name(order));
                Training run = training_of(stage);
                (has_nodes ? run.sharding.node_ranks : run.sharding.shard_ranks) = 2;
                run.sharding.order = order;
                run.sharding.progress_thread = false;
                const std::vector<Outcome> expected = train(4, run, true);
                run.sharding.progress_thread = true;
                const std::vector<Outcome> hasty = train(4, run, true);
                const std::vector<Outcome> patient = train_patiently(4, run);
                for (std::size_t rank = 0; rank < expected.size(); ++rank) {
                    expect_same(expected[rank], hasty[rank]);
                    expect_same(expected[rank], patient[rank]);
                }
            }
        }
    }
}

// Both ways to say that a slot's gradients are there, after each other.
TEST(ProgressThread, ASlotThatIsReadyIsNotSentTwice) {
    Training run = training_of(1, "fp32");
    run.slots = run.sharding.slots = 6;
    run.sharding.order = comm::SumOrder::tree;
    const std::vector<Outcome> expected = train(2, run);
    std::vector<Outcome> outcomes(2);
    train_ranks(2, run, [&](TestModel& test_model) {
        test_model.optimizer().shard(test_model.stream());
        for (int32_t step = 0; step < run.steps; ++step) {
            const comm::SlotRun slots = comm::slots_of(test_model.comm().rank(), 2, run.slots);
            for (int32_t slot = slots.first; slot < slots.end; ++slot) {
                for (std::size_t p = model().size(); p-- > 0;) {
                    test_model.write_gradient(p, slot, step);
                }
                for (std::size_t p = model().size(); p-- > static_cast<std::size_t>(slot % 7);) {
                    test_model.optimizer().sharding()->grad_ready(test_model.stream(),
                                                                  static_cast<int32_t>(p));
                }
                test_model.optimizer().sharding()->end_microbatch(test_model.stream());
            }
            test_model.optimizer().step(test_model.stream(), nullptr);
        }
        outcomes[static_cast<std::size_t>(test_model.comm().rank())] = test_model.outcome();
    });
    expect_same(expected[0], outcomes[0]);
    expect_same(expected[1], outcomes[1]);
}

// ---- without a thread

TEST(ProgressThread, IsLeftOutWithAReason) {
    Training run = training_of(2);
    run.sharding.progress_thread = false;
    train_ranks(2, run, [](TestModel& test_model) {
        test_model.optimizer().shard(test_model.stream());
        test_model.backward(0, true);
        EXPECT_FALSE(compute_until([&] { return messages(test_model).finished_by_thread > 0; },
                                   milliseconds(50)));
        test_model.optimizer().step(test_model.stream(), nullptr);
        EXPECT_EQ(messages(test_model).finished_by_thread, 0);
        EXPECT_TRUE(all_finished(test_model));
        EXPECT_NE(test_model.optimizer().sharding()->progress().why_no_thread(), nullptr);
    });
    train_ranks(1, training_of(2), [](TestModel& test_model) {
        test_model.optimizer().shard(test_model.stream());
        EXPECT_STREQ(test_model.optimizer().sharding()->progress().why_no_thread(),
                     "there is one rank");
    });
}

// Groups whose messages are kernels of one device: what a bucket begins later is begun in the order of the calls.
TEST(ProgressThread, BeginsNothingOnADevice) {
    Training run = training_of(2);
    run.sharding.shard_ranks = 2;
    run.steps = 1;
    const std::vector<Outcome> expected = train(4, run, true);
    std::vector<std::unique_ptr<Communicator>> ranks;
    for (auto& transport : comm::make_thread_transports({4, 0})) {
        const auto fault = std::make_shared<PlannedFault>();
        fault->on_device = true;
        ranks.push_back(std::make_unique<Communicator>(
            std::make_unique<FaultyTransport>(std::move(transport), fault)));
    }
    run_ranks(std::move(ranks), [&](std::unique_ptr<Communicator>& comm) {
        TestModel test_model(run, std::move(comm));
        test_model.optimizer().shard(test_model.stream());
        test_model.backward(0, true);
        EXPECT_FALSE(compute_until([&] { return messages(test_model).finished_by_thread > 0; },
                                   milliseconds(50)));
        test_model.optimizer().step(test_model.stream(), nullptr);
        expect_same(expected[static_cast<std::size_t>(test_model.comm().rank())],
                    test_model.outcome());
    });
}

// ---- faults

constexpr int64_t kDeadlineMs = 700;

// One rank is gone, or does nothing, while the others' threads hold its buckets; nobody makes a call meanwhile.
void lose_a_rank(int32_t stage, bool is_gone, Code expected) {
    constexpr int32_t kRanks = 3;
    std::latch survivors_are_through(kRanks - 1);
    run_ranks(make_ranks({kRanks, 0}), [&](std::unique_ptr<Communicator>& own) {
        const std::shared_ptr<Communicator> comm = std::move(own);
        const bool is_victim = comm->rank() == 1;
        auto test_model = std::make_unique<TestModel>(training_of(stage), comm);
        test_model->optimizer().shard(test_model->stream());
        test_model->backward(0, true);
        test_model->optimizer().step(test_model->stream(), nullptr);
        const Outcome committed = test_model->outcome();
        if (stage == 3) {
            test_model->release_all();
        }
        if (is_victim) {
            if (!is_gone) {
                survivors_are_through.wait();
            }
            return;
        }
        if (!is_gone) { // only now: a slow machine takes longer for a step than a stuck rank may
            check(comm->set_deadline_ms(kDeadlineMs));
        }
        try {
            test_model->backward(1, true);
        } catch (const Error&) { // it was seen at once
        }
        EXPECT_TRUE(compute_until([&] { return !comm->status().ok(); }));
        for (int call = 0; call < 2; ++call) { // it stays
            try {
                test_model->optimizer().step(test_model->stream(), nullptr);
                ADD_FAILURE() << "the step ended well";
            } catch (const Error& error) {
                // A rank whose deadline passes first tells the others.
                const Code code = error.status().code();
                EXPECT_TRUE(code == expected || (!is_gone && code == Code::peer_lost))
                    << error.what();
            }
        }
        EXPECT_EQ(test_model->optimizer().read_state(test_model->stream()).step, 1);
        if (stage < 3) {
            EXPECT_EQ(test_model->outcome().params, committed.params);
        }
        test_model.reset();
        survivors_are_through.count_down();
    });
}

TEST(ProgressThread, ALostRankComesOutOfTheNextCall) {
    for (int32_t stage = 0; stage <= 3; ++stage) {
        SCOPED_TRACE(stage);
        lose_a_rank(stage, true, Code::peer_lost);
    }
}

TEST(ProgressThread, AStuckRankComesOutOfTheNextCallInTime) {
    for (const int32_t stage : {1, 3}) {
        SCOPED_TRACE(stage);
        lose_a_rank(stage, false, Code::timeout);
    }
}

// With a bucket under way that will never end.
TEST(ProgressThread, DestructionDoesNotWait) {
    std::latch is_destroyed(1);
    run_ranks(make_ranks({2, 0}, 60000), [&](std::unique_ptr<Communicator>& own) {
        const bool is_first = own->rank() == 0;
        auto test_model = std::make_unique<TestModel>(training_of(1), std::move(own));
        test_model->optimizer().shard(test_model->stream());
        if (is_first) {
            test_model->write_gradient(5, 0, 0);
            test_model->optimizer().sharding()->grad_ready(test_model->stream(), 5);
            EXPECT_FALSE(all_finished(*test_model));
            const auto start = Clock::now();
            test_model.reset();
            EXPECT_LT(Clock::now() - start, kPatience); // the bucket's deadline is later
            is_destroyed.count_down();
        } else {
            is_destroyed.wait();
        }
    });
}

// ---- the simulated network

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
            found.steps[i] = test_model.optimizer().read_state(test_model.stream()).step;
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
