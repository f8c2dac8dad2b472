// SPDX-License-Identifier: Apache-2.0
// What moves between the calls of a sharded optimizer: buckets and gathers end while the caller makes no call, and a rank that
// is lost or late meanwhile gives a status in the next call.
#include <gtest/gtest.h>

#include <latch>

#include "faulty_transport.hpp"
#include "progress_training.hpp"

namespace mp::test {
namespace {

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
            const comm::Progress::Lock lock(progress);
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
        const comm::Progress::Lock lock(progress);
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
        EXPECT_EQ(test_model->optimizer().tables().read_state(test_model->stream()).step, 1);
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

} // namespace
} // namespace mp::test
