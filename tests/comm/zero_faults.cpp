// SPDX-License-Identifier: Apache-2.0
// ZeRO when ranks disagree, are lost or run out of memory: every rank gets a status in time, and nobody's state is
// anything but that of the last committed step.
#include <chrono>
#include <thread>

#include "stalls.hpp"
#include "zero.hpp"

namespace mp::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kDeadlineMs = 1000;
constexpr int32_t kRanks = 4;

Training training_of(int32_t stage, int32_t shard_ranks = 0, int32_t node_ranks = 0) {
    Training training;
    training.sharding.node_ranks = node_ranks;
    training.sharding.shard_ranks = shard_ranks;
    training.recipe = recipe::find_preset("bf16_pure_kahan").recipe;
    training.sharding.stage = stage;
    training.sharding.bucket_elements = 30000;
    return training;
}

struct End {
    std::vector<Status> statuses;
    int64_t elapsed_ms = 0;
};

// Runs a body on every rank: what each one threw, and how long it took.
End live(const std::function<void(int32_t, std::shared_ptr<Communicator>)>& body) {
    const auto started = Clock::now();
    std::vector<Status> statuses(kRanks);
    run_ranks(make_ranks({kRanks, 0}, kDeadlineMs), [&](std::unique_ptr<Communicator>& own) {
        const std::shared_ptr<Communicator> comm = std::move(own);
        const int32_t rank = comm->rank();
        try {
            body(rank, comm);
        } catch (const Error& error) {
            statuses[static_cast<std::size_t>(rank)] = error.status();
        }
    });
    return {statuses,
            std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started).count()};
}

// The same; the body may be run more than once.
End end_of(const std::function<void(int32_t, std::shared_ptr<Communicator>)>& body) {
    return mp_test::undisturbed_by_stalls(kDeadlineMs / 2, [&] { return live(body); });
}

std::vector<Status>
statuses_of(const std::function<void(int32_t, std::shared_ptr<Communicator>)>& body) {
    return end_of(body).statuses;
}

void expect_mismatch(const std::vector<Status>& statuses, const std::string& what) {
    for (const Status& status : statuses) {
        EXPECT_EQ(status.code(), Code::rank_mismatch) << status.text();
        EXPECT_NE(std::string(status.text()).find(what), std::string::npos)
            << what << " is not in " << status.text();
        EXPECT_NE(std::string(status.text()).find("rank(s) 2 do not"), std::string::npos)
            << status.text();
    }
}

// Found before the first gradient moves, and named.
TEST(ZeroFaults, RanksThatDifferAreNamed) {
    expect_mismatch(
        statuses_of([&](int32_t rank, const std::shared_ptr<Communicator>& comm) {
            Training training = training_of(1);
            if (rank == 2) {
                training.recipe = recipe::find_preset("bf16_pure").recipe;
            }
            TestModel test_model(training, comm);
            test_model.optimizer().shard(test_model.stream());
        }),
        "disagree in the recipe's optimizer.compensation.dtype: rank(s) 0, 1, 3 have 'bf16'");
    const std::vector<std::pair<const char*, std::function<void(Training&)>>> differences = {
        {"max_grad_norm", [](Training& t) { t.max_grad_norm = 2.0; }},
        {"MP_SHARDING_SUM_GRADIENTS", [](Training& t) { t.sharding.sum_gradients = true; }},
        {"sharding.bucket_elements", [](Training& t) { t.sharding.bucket_elements = 1; }},
        {"sharding.kind", [](Training& t) { t.sharding.kind = shard::ShardKind::greedy; }},
        {"sharding.shard_ranks", [](Training& t) { t.sharding.shard_ranks = 2; }},
        {"sharding.check_every", [](Training& t) { t.sharding.check_every = 7; }},
        {"sharding.node_ranks", [](Training& t) { t.sharding.node_ranks = 2; }},
        {"sharding.wire_dtype or its scale",
         [](Training& t) { t.sharding.wire = comm::wire_format(DType::bf16); }},
    };
    for (const auto& [name, difference] : differences) {
        expect_mismatch(statuses_of([&, change = difference](
                                        int32_t rank, const std::shared_ptr<Communicator>& comm) {
                            Training training = training_of(1);
                            if (rank == 2) {
                                change(training);
                            }
                            TestModel test_model(training, comm);
                            test_model.optimizer().shard(test_model.stream());
                        }),
                        name);
    }
}

TEST(ZeroFaults, OtherModelsAndWeightsAreNamed) {
    expect_mismatch(statuses_of([&](int32_t rank, const std::shared_ptr<Communicator>& comm) {
                        TestModel test_model(training_of(1), comm);
                        if (rank == 2) {
                            optim::NewParameter more;
                            more.name = "more";
                            more.param =
                                std::make_shared<Tensor>(test_model.context(), test_model.stream(),
                                                         DType::fp32, Shape{{3}, 1});
                            test_model.optimizer().add_parameter(test_model.stream(), 0, more);
                        }
                        test_model.optimizer().shard(test_model.stream());
                    }),
                    "the number of parameters");
    // As many, but the last is another.
    expect_mismatch(statuses_of([&](int32_t rank, const std::shared_ptr<Communicator>& comm) {
                        TestModel test_model(training_of(1), comm);
                        optim::NewParameter more;
                        more.name = "more";
                        more.param =
                            std::make_shared<Tensor>(test_model.context(), test_model.stream(),
                                                     DType::fp32, Shape{{rank == 2 ? 4 : 3}, 1});
                        test_model.optimizer().add_parameter(test_model.stream(), 0, more);
                        test_model.optimizer().shard(test_model.stream());
                    }),
                    "'s name, shape, types or group: rank(s) 0, 1, 3 have 'more: [3] fp32, "
                    "gradient bf16, group 0'");
    expect_mismatch(statuses_of([&](int32_t rank, const std::shared_ptr<Communicator>& comm) {
                        Training training = training_of(1);
                        training.first = rank == 2 ? 0.0010001F : training.first;
                        TestModel test_model(training, comm);
                        test_model.optimizer().shard(test_model.stream());
                    }),
                    "initial weights");
}

TEST(ZeroFaults, OtherHyperparametersStopTheStepBeforeItIsApplied) {
    std::vector<Outcome> before(kRanks);
    std::vector<Outcome> after(kRanks);
    expect_mismatch(statuses_of([&](int32_t rank, const std::shared_ptr<Communicator>& comm) {
                        const auto i = static_cast<std::size_t>(rank);
                        TestModel test_model(training_of(1), comm);
                        test_model.optimizer().shard(test_model.stream());
                        test_model.backward(0, false);
                        test_model.optimizer().step(test_model.stream(), nullptr);
                        before[i] = test_model.outcome();
                        if (rank == 2) {
                            test_model.optimizer().groups().set_lr(-1, 0.02);
                        }
                        test_model.backward(1, false);
                        try {
                            test_model.optimizer().step(test_model.stream(), nullptr);
                        } catch (const Error&) {
                            after[i] = test_model.outcome();
                            EXPECT_TRUE(comm->run(comm::Barrier{}).ok())
                                << "the ranks are still together";
                            throw;
                        }
                    }),
                    "rank(s) 0, 1, 3 have 'group 0: lr 0.01,");
    for (std::size_t i = 0; i < kRanks; ++i) {
        EXPECT_EQ(after[i].params, before[i].params);
        EXPECT_EQ(after[i].state.step, 1);
    }
}

// A bit of a weight that changes on one rank, as in faulty memory: the next comparison finds it before it is applied.
TEST(ZeroFaults, AFlippedBitIsFoundAndNamed) {
    for (const int32_t stage : {0, 1, 2}) {
        for (const int32_t shard_ranks : {0, 2}) {
            std::vector<int64_t> taken(kRanks);
            expect_mismatch(
                statuses_of([&](int32_t rank, const std::shared_ptr<Communicator>& comm) {
                    Training training = training_of(stage, shard_ranks);
                    training.sharding.check_every = 2; // of steps 0, 2, 4, ...
                    TestModel test_model(training, comm);
                    test_model.optimizer().shard(test_model.stream());
                    for (int32_t step = 0; step < 4; ++step) {
                        test_model.backward(step, false);
                        if (step == 2 && rank == 2) {
                            static_cast<unsigned char*>(test_model.param(5)->data())[777] ^= 4;
                        }
                        taken[static_cast<std::size_t>(rank)] = step;
                        test_model.optimizer().step(test_model.stream(), nullptr);
                    }
                }),
                "the weights' bits");
            EXPECT_EQ(taken, std::vector<int64_t>(kRanks, 2));
        }
    }
}

// Where one rank leaves, by what it does last.
enum class Leaves { before_shard, after_shard, in_backward, before_step };

// The steps after the first; a rank that is lost leaves in the first of them.
void go_on(TestModel& test_model, Leaves leaves, bool is_lost) {
    for (int32_t step = 1; step < 3; ++step) {
        if (is_lost && leaves == Leaves::in_backward) {
            test_model.write_gradient(5, test_model.comm().rank(), step);
            test_model.optimizer().sharding()->grad_ready(test_model.stream(), 5);
            return;
        }
        test_model.backward(step, true);
        if (is_lost && leaves == Leaves::before_step) {
            return;
        }
        test_model.optimizer().step(test_model.stream(), nullptr);
    }
}

void leave_at(Leaves leaves, int32_t stage, int32_t shard_ranks, int32_t node_ranks) {
    std::vector<Outcome> committed(kRanks);
    std::vector<Outcome> last(kRanks);
    const auto [statuses, elapsed_ms] =
        end_of([&](int32_t rank, const std::shared_ptr<Communicator>& comm) {
            const auto i = static_cast<std::size_t>(rank);
            const bool is_lost = rank == 1;
            TestModel test_model(training_of(stage, shard_ranks, node_ranks), comm);
            if (is_lost && leaves == Leaves::before_shard) {
                return;
            }
            test_model.optimizer().shard(test_model.stream());
            test_model.backward(0, false);
            test_model.optimizer().step(test_model.stream(), nullptr);
            committed[i] = test_model.outcome();
            if (stage == 3) {
                test_model.release_all();
            }
            if (is_lost && leaves == Leaves::after_shard) {
                return;
            }
            try {
                go_on(test_model, leaves, is_lost);
            } catch (const Error&) {
                last[i].state = test_model.optimizer().tables().read_state(test_model.stream());
                if (stage < 3) {
                    last[i] = test_model.outcome();
                }
                throw;
            }
        });
    EXPECT_LT(elapsed_ms, kDeadlineMs + 1000 + 2000) << "two seconds are for the training before";
    for (std::size_t i = 0; i < kRanks; ++i) {
        if (i == 1) {
            continue;
        }
        EXPECT_TRUE(statuses[i].code() == Code::peer_lost || statuses[i].code() == Code::timeout)
            << statuses[i].text();
        if (leaves == Leaves::before_shard) {
            continue;
        }
        EXPECT_EQ(last[i].state.step, 1);
        if (stage < 3) {
            EXPECT_EQ(last[i].params, committed[i].params);
        }
    }
}

// With groups or nodes of two, the rank that leaves before the step has sent its group all it must, and is missed first by
// its counterpart, when the groups' sums are added; by its neighbour when those of the norm are; by the fourth in the agreement.
TEST(ZeroFaults, ALostRankLeavesTheLastCommittedStep) {
    for (const int32_t levels : {0, 1, 2}) {
        for (const int32_t stage : {0, 1, 2, 3}) {
            for (const Leaves leaves : {Leaves::before_shard, Leaves::after_shard,
                                        Leaves::in_backward, Leaves::before_step}) {
                SCOPED_TRACE("levels " + std::to_string(levels) + ", stage " +
                             std::to_string(stage) + ", place " +
                             std::to_string(static_cast<int32_t>(leaves)));
                leave_at(leaves, stage, levels == 1 ? 2 : 0, levels == 2 ? 2 : 0);
            }
        }
    }
}

// A rank that is alive and does nothing.
void stay_away(int32_t shard_ranks, bool sends) {
    const auto [statuses, elapsed_ms] =
        end_of([&](int32_t rank, const std::shared_ptr<Communicator>& comm) {
            TestModel test_model(training_of(2, shard_ranks), comm);
            test_model.optimizer().shard(test_model.stream());
            if (rank == 3 && sends) {
                test_model.backward(0, true);
            }
            if (rank == 3) {
                std::this_thread::sleep_for(std::chrono::milliseconds(kDeadlineMs + 700));
                return;
            }
            test_model.backward(0, true);
            test_model.optimizer().step(test_model.stream(), nullptr);
        });
    EXPECT_LT(elapsed_ms, kDeadlineMs + 700 + 1000);
    int32_t timeouts = 0;
    for (std::size_t i = 0; i < kRanks; ++i) {
        if (i != 3) {
            EXPECT_FALSE(statuses[i].ok());
            timeouts += statuses[i].code() == Code::timeout ? 1 : 0;
        }
    }
    EXPECT_GE(timeouts, 1);
}

TEST(ZeroFaults, AStuckRankMeansTimeout) { stay_away(0, false); }

// Its group has its contributions; its replica, its neighbour and the fourth wait in an exchange each.
TEST(ZeroFaults, ARankStuckBetweenTheGroupsMeansTimeout) {
    stay_away(2, false);
    stay_away(2, true);
}

} // namespace
} // namespace mp::test
