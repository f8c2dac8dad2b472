// SPDX-License-Identifier: Apache-2.0
// Sharded optimizers on the ranks of mpirun.
#include <mpi.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <thread>

#include "../test_model.hpp"
#include "program.hpp"

namespace mp::test {
namespace {

Training training_of(int32_t stage, bool has_thread) {
    Training run;
    run.recipe = recipe::find_preset("bf16_pure_kahan").recipe;
    run.sharding.stage = stage;
    run.sharding.bucket_elements = 30000;
    run.sharding.progress_thread = has_thread;
    return run;
}

// The caller computes: no call of the library, and none of MPI.
bool compute_until(const Settings& settings, const std::function<bool()>& condition) {
    const int64_t until = now_ms() + settings.deadline_ms + 900;
    while (!condition() && now_ms() < until) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return condition();
}

bool is_all_finished(TestModel& test_model) {
    const comm::MessageCounts& messages = test_model.optimizer().sharding()->progress().messages();
    return messages.finished == messages.begun;
}

// Stochastic weights and bf16 on the wire: what a wrong element, step or number of ranks would show in.
Training invariant_training(comm::SumOrder order) {
    Training run;
    run.recipe = recipe::find_preset("bf16_pure_sr").recipe;
    run.sharding.wire = comm::wire_format(DType::bf16);
    run.sharding.bucket_elements = 30000;
    run.sharding.order = order;
    if (comm::has_slots(order)) {
        run.slots = run.sharding.slots = 8;
    }
    return run;
}

Outcome train(const Training& run, std::shared_ptr<Communicator> comm) {
    TestModel test_model(run, std::move(comm));
    test_model.optimizer().shard(test_model.stream());
    for (int32_t step = 0; step < run.steps; ++step) {
        test_model.backward(step, run.sharding.stage % 2 == 1);
        test_model.optimizer().step(test_model.stream(), nullptr);
    }
    return test_model.outcome();
}

Outcome train_threads(int32_t ranks, const Training& run) {
    Outcome outcome;
    run_ranks(make_ranks({ranks, 0}), [&](std::unique_ptr<Communicator>& comm) {
        const bool is_first = comm->rank() == 0;
        Outcome own = train(run, std::move(comm));
        if (is_first) {
            outcome = std::move(own);
        }
    });
    return outcome;
}

bool is_same(const Outcome& one, const Outcome& other) {
    return one.params == other.params && one.state.step == other.state.step &&
           one.state.grad_norm == other.state.grad_norm;
}

// The last rank ends, or stands still, while the others' threads hold buckets that wait for its part. Nobody makes a call
// until the thread has found it.
std::string survive_training(const Settings& settings, const std::function<void()>& end) {
    const std::shared_ptr<Communicator> comm = open(settings);
    std::string wrong;
    {
        TestModel test_model(training_of(2, true), comm);
        test_model.optimizer().shard(test_model.stream());
        test_model.backward(0, true);
        test_model.optimizer().step(test_model.stream(), nullptr);
        const Outcome committed = test_model.outcome();
        if (comm->rank() == comm->size() - 1) {
            test_model.write_gradient(5, comm->rank(),
                                      1); // its first bucket leaves, the others do not
            test_model.optimizer().sharding()->grad_ready(test_model.stream(), 5);
            end();
        }
        const int64_t begin = now_ms();
        try {
            test_model.backward(1, true);
        } catch (const Error&) { // it was found by then
        }
        wrong += compute_until(settings, [&] { return !comm->status().ok(); })
                     ? ""
                     : " the thread did not find it";
        Status status;
        try {
            test_model.optimizer().step(test_model.stream(), nullptr);
        } catch (const Error& error) {
            status = error.status();
        }
        const int64_t took = now_ms() - begin;
        wrong += expect(status, {Code::timeout, Code::peer_lost, Code::mpi_error}, "");
        wrong +=
            took > settings.deadline_ms + 1000 ? " it took " + std::to_string(took) + " ms" : "";
        wrong += test_model.optimizer().tables().read_state(test_model.stream()).step == 1
                     ? ""
                     : " a step more";
        wrong += test_model.outcome().params == committed.params ? "" : " other weights";
        std::printf("%s after %lld ms\n", status.text(), static_cast<long long>(took));
    }
    return wrong;
}

} // namespace

// The bits of a run with the thread, in which all buckets end while nobody makes a call, are those of one without.
std::string zero(const Settings& settings) {
    std::string wrong;
    for (int32_t stage = 0; stage <= 3; ++stage) {
        std::array<Outcome, 2> outcomes;
        for (const bool has_thread : {false, true}) {
            TestModel test_model(training_of(stage, has_thread), open(settings));
            test_model.optimizer().shard(test_model.stream());
            const char* reason = test_model.optimizer().sharding()->progress().why_no_thread();
            if ((reason == nullptr) != (has_thread && test_model.comm().size() > 1)) {
                wrong += std::string("thread: ") + (reason == nullptr ? "there" : reason);
            }
            for (int32_t step = 0; step < 3; ++step) {
                test_model.backward(step, true);
                if (has_thread &&
                    !compute_until(settings, [&] { return is_all_finished(test_model); })) {
                    wrong += " a bucket did not end by itself";
                }
                test_model.optimizer().step(test_model.stream(), nullptr);
            }
            outcomes[has_thread ? 1 : 0] = test_model.outcome();
        }
        if (!is_same(outcomes[0], outcomes[1])) {
            wrong += " other bits in stage " + std::to_string(stage);
        }
    }
    return wrong;
}

// Ranks of MPI against ranks that are threads: one alone in the orders whose bits no number of ranks changes, as many in
// the order of the ranks.
std::string zero_invariant(const Settings& settings) {
    const std::shared_ptr<Communicator> comm = open(settings);
    std::string wrong;
    for (const auto order : {comm::SumOrder::tree, comm::SumOrder::exact, comm::SumOrder::rank}) {
        const bool is_of_ranks = order == comm::SumOrder::rank;
        Training run = invariant_training(order);
        const Outcome expected = train_threads(is_of_ranks ? comm->size() : 1, run);
        for (int32_t stage = 0; stage <= 3; ++stage) {
            for (const auto kind : {shard::ShardKind::flat, shard::ShardKind::per_parameter,
                                    shard::ShardKind::greedy}) {
                run.sharding.stage = stage;
                run.sharding.kind = kind;
                if (!is_same(expected, train(run, comm))) {
                    wrong += " other bits in order " + std::to_string(static_cast<int>(order)) +
                             ", stage " + std::to_string(stage) + ", plan " +
                             std::to_string(static_cast<int>(kind));
                }
            }
        }
    }
    return wrong;
}

// The middle rank differs, in what training is made of or in a step's hyperparameters: all are told which one before
// anything is applied, and are still together.
std::string zero_disagrees(const Settings& settings) {
    const std::shared_ptr<Communicator> comm = open(settings);
    const bool differs = comm->rank() == 1;
    std::string wrong;
    const auto expect_named = [&](const std::function<void()>& body, const char* what) {
        Status status;
        try {
            body();
        } catch (const Error& error) {
            status = error.status();
        }
        wrong += expect(status, {Code::rank_mismatch}, what);
        wrong += expect(status, {Code::rank_mismatch}, "rank(s) 1 do not");
        wrong += comm->run(comm::Barrier{}).ok() ? "" : " the ranks are not together";
    };
    const struct {
        void (*make)(Training& run);
        const char* what;
    } differences[] = {
        {[](Training& run) { run.recipe = recipe::find_preset("bf16_pure").recipe; },
         "disagree in the recipe's"},
        {[](Training& run) { run.sharding.wire = comm::wire_format(DType::bf16); },
         "sharding.wire_dtype"},
        {[](Training& run) { run.sharding.bucket_elements = 1; }, "sharding.bucket_elements"},
    };
    for (const auto& difference : differences) {
        Training run = training_of(2, true);
        if (differs) {
            difference.make(run);
        }
        TestModel test_model(run, comm);
        expect_named([&] { test_model.optimizer().shard(test_model.stream()); }, difference.what);
    }
    TestModel test_model(training_of(2, true), comm);
    test_model.optimizer().shard(test_model.stream());
    test_model.optimizer().groups().set_lr(-1, differs ? 0.02 : 0.01);
    test_model.backward(0, true);
    expect_named([&] { test_model.optimizer().step(test_model.stream(), nullptr); }, "lr 0.02");
    wrong += test_model.optimizer().tables().read_state(test_model.stream()).step == 0
                 ? ""
                 : " it was applied";
    return wrong;
}

// A program that began MPI with less has no such thread, and the same bits.
std::string zero_serialized(const Settings& settings) {
    int provided = 0;
    (void)MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    std::string wrong;
    {
        TestModel test_model(training_of(1, true), open(settings));
        test_model.optimizer().shard(test_model.stream());
        const char* reason = test_model.optimizer().sharding()->progress().why_no_thread();
        if (reason == nullptr || std::string(reason).find("MULTIPLE") == std::string::npos) {
            wrong = "there is a thread";
        }
        test_model.backward(0, true);
        test_model.optimizer().step(test_model.stream(), nullptr);
    }
    (void)MPI_Finalize();
    return wrong;
}

std::string zero_killed(const Settings& settings) {
    return survive_training(settings, [] { (void)raise(SIGKILL); });
}

std::string zero_stopped(const Settings& settings) {
    return survive_training(settings, [&settings] { stop_for_good(settings); });
}

// Two groups of two, with the bits of one of four.
std::string hybrid(const Settings& settings) {
    Outcome outcomes[2];
    for (const int32_t shard_ranks : {0, 2}) {
        Training training = training_of(2, true);
        training.sharding.order = comm::SumOrder::tree;
        training.sharding.shard_ranks = shard_ranks;
        outcomes[shard_ranks / 2] = train(training, open(settings));
    }
    return outcomes[0].params == outcomes[1].params ? "" : "groups have other weights";
}

} // namespace mp::test
