// SPDX-License-Identifier: Apache-2.0
// One rank under mpirun. What it found goes to a file of its own, since a launcher's exit code says little.
//
// usage: program CASE RESULT_FOLDER DEADLINE_MS
#include <mpi.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <sys/types.h>
#include <thread>
#include <unistd.h>

#include "../collectives.hpp"
#include "../trainee.hpp"
#include "context/module_loader.hpp"

namespace mp::test {
namespace {

struct Settings {
    std::string folder;
    int64_t deadline_ms = 0;
};

int64_t now_ms() { return monotonic_ns() / 1000000; }

std::unique_ptr<Communicator> open(const Settings& settings, const void* native = nullptr) {
    TransportConfig config;
    config.native = native;
    config.deadline_ms = settings.deadline_ms;
    Transport* transport = nullptr;
    check(load_transport("mpi").create(config, &transport));
    return std::make_unique<Communicator>(std::unique_ptr<Transport>(transport),
                                          settings.deadline_ms);
}

std::string basics(const Settings& settings) {
    const auto comm = open(settings);
    std::string wrong = check_basics(*comm);
    wrong += check_split(*comm);
    wrong += check_split(*comm);
    // More than one message to each rank, and more collectives than there are tags.
    wrong += check_all_to_all(*comm, 300000, 9);
    wrong += check_broadcast(*comm, 3000001, 10);
    wrong += check_overlap(*comm, 200000);
    for (uint64_t i = 0; i < 600 && wrong.empty(); ++i) {
        wrong += check_all_to_all(*comm, 1, i);
    }
    wrong += words(comm->learn_nodes(7));
    wrong += comm->node(comm->size() - 1) == 0 ? "" : "nodes";
    if (comm->describe().find("thread level") == std::string::npos) {
        wrong += comm->describe();
    }
    return wrong;
}

// Half of the caller's ranks, in the caller's communicator, which is freed before ours is used.
std::string callers(const Settings& settings) {
    (void)MPI_Init(nullptr, nullptr);
    int rank = 0;
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm half = MPI_COMM_NULL;
    (void)MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
    std::string wrong;
    {
        const auto comm = open(settings, &half);
        (void)MPI_Comm_free(&half);
        wrong = check_basics(*comm) + check_split(*comm);
    }
    int is_finalized = 1;
    (void)MPI_Finalized(&is_finalized);
    (void)MPI_Finalize();
    return is_finalized == 0 ? wrong : "it finalized what is not its own";
}

std::string expect(const Status& status, std::initializer_list<Code> codes, const char* text) {
    for (const Code code : codes) {
        if (status.code() == code) {
            return std::string(status.text()).find(text) != std::string::npos
                       ? ""
                       : std::string("no '") + text + "' in: " + status.text();
        }
    }
    return "status " + std::to_string(static_cast<int>(status.code())) + ": " + status.text();
}

std::string mismatch(const Settings& settings) {
    const auto comm = open(settings);
    std::vector<unsigned char> data(64);
    const auto size = static_cast<std::size_t>(comm->size());
    std::vector<int64_t> bytes(size, 4);
    const std::vector<int64_t> zeros(size, 0);
    if (comm->rank() == 0) {
        bytes[1] = 5; // rank 1 sends 4
    }
    const std::vector<int64_t> sent(size, 4);
    std::string wrong = expect(comm->all_to_all({data.data(), sent.data(), zeros.data(),
                                                 data.data(), bytes.data(), zeros.data()}),
                               {Code::rank_mismatch, Code::peer_lost, Code::ok}, "");
    // Rank 0 found it, and the others learn of it at the latest in their next call.
    const Status status = comm->barrier();
    wrong += comm->rank() == 0 ? expect(status, {Code::rank_mismatch},
                                        "rank 1 sends 4 bytes, but this rank expects 5")
                               : expect(status, {Code::peer_lost}, "rank 0 gave up");
    return wrong;
}

std::string other_call(const Settings& settings) {
    const auto comm = open(settings);
    std::vector<uint32_t> values(3);
    const Status status = comm->rank() == 0 ? comm->max_u32(values.data(), 3) : comm->barrier();
    return expect(status, {Code::rank_mismatch, Code::peer_lost}, "");
}

// After `during`, every rank but the last must have a status within the deadline and a second, and be able to destroy
// its communicator.
std::string survive(const Settings& settings, const std::function<void()>& end) {
    auto comm = open(settings);
    std::string wrong = check_basics(*comm);
    if (comm->rank() == comm->size() - 1) {
        end();
    }
    Status status;
    const int64_t begin = now_ms();
    for (int i = 0; i < 1000 && status.ok(); ++i) {
        Exchange exchange = make_exchange(comm->rank(), comm->size(), 5000, 1);
        status = comm->all_to_all(describe(exchange));
    }
    const int64_t took = now_ms() - begin;
    wrong += expect(status, {Code::timeout, Code::peer_lost, Code::mpi_error}, "all_to_all #");
    const int64_t again = now_ms();
    wrong += comm->barrier().code() == status.code() ? "" : " the failure does not stay";
    comm.reset();
    if (took > settings.deadline_ms + 1000 || now_ms() - again > 500) {
        wrong += " it took " + std::to_string(took) + " ms";
    }
    std::printf("%s after %lld ms\n", status.text(), static_cast<long long>(took));
    return wrong;
}

std::string killed(const Settings& settings) {
    return survive(settings, [] { (void)raise(SIGKILL); });
}

std::string exited(const Settings& settings) {
    return survive(settings, [] { _exit(0); });
}

void stop_for_good(const Settings& settings) {
    const pid_t self = getpid();
    if (fork() == 0) { // ends it when the others are through
        std::this_thread::sleep_for(std::chrono::milliseconds(2 * settings.deadline_ms + 2000));
        (void)kill(self, SIGKILL);
        _exit(0);
    }
    (void)kill(self, SIGSTOP); // all its threads
}

std::string stopped(const Settings& settings) {
    return survive(settings, [&settings] { stop_for_good(settings); });
}

// ---- sharded optimizers, and the thread that moves their gradients on

Training training_of(int32_t stage, bool has_thread) {
    Training run;
    run.recipe = find_preset("bf16_pure_kahan").recipe;
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

bool is_all_finished(Trainee& trainee) {
    const MessageCounts& messages = trainee.optimizer().sharding()->messages();
    return messages.finished == messages.begun;
}

// The bits of a run with the thread, in which all buckets end while nobody makes a call, are those of one without.
std::string zero(const Settings& settings) {
    std::string wrong;
    for (int32_t stage = 0; stage <= 3; ++stage) {
        std::array<Outcome, 2> outcomes;
        for (const bool has_thread : {false, true}) {
            Trainee trainee(training_of(stage, has_thread), open(settings));
            trainee.optimizer().shard(trainee.stream());
            const char* reason = trainee.optimizer().sharding()->why_no_thread();
            if ((reason == nullptr) != (has_thread && trainee.comm().size() > 1)) {
                wrong += std::string("thread: ") + (reason == nullptr ? "there" : reason);
            }
            for (int32_t step = 0; step < 3; ++step) {
                trainee.backward(step, true);
                if (has_thread &&
                    !compute_until(settings, [&] { return is_all_finished(trainee); })) {
                    wrong += " a bucket did not end by itself";
                }
                trainee.optimizer().step(trainee.stream(), nullptr);
            }
            outcomes[has_thread ? 1 : 0] = trainee.outcome();
        }
        if (outcomes[0].params != outcomes[1].params ||
            outcomes[0].state.grad_norm != outcomes[1].state.grad_norm) {
            wrong += " other bits in stage " + std::to_string(stage);
        }
    }
    return wrong;
}

// A program that began MPI with less has no such thread, and the same bits.
std::string zero_serialized(const Settings& settings) {
    int provided = 0;
    (void)MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    std::string wrong;
    {
        Trainee trainee(training_of(1, true), open(settings));
        trainee.optimizer().shard(trainee.stream());
        const char* reason = trainee.optimizer().sharding()->why_no_thread();
        if (reason == nullptr || std::string(reason).find("MULTIPLE") == std::string::npos) {
            wrong = "there is a thread";
        }
        trainee.backward(0, true);
        trainee.optimizer().step(trainee.stream(), nullptr);
    }
    (void)MPI_Finalize();
    return wrong;
}

// The last rank ends, or stands still, while the others' threads hold buckets that wait for its part. Nobody makes a call
// until the thread has found it.
std::string survive_training(const Settings& settings, const std::function<void()>& end) {
    const std::shared_ptr<Communicator> comm = open(settings);
    std::string wrong;
    {
        Trainee trainee(training_of(2, true), comm);
        trainee.optimizer().shard(trainee.stream());
        trainee.backward(0, true);
        trainee.optimizer().step(trainee.stream(), nullptr);
        const Outcome committed = trainee.outcome();
        if (comm->rank() == comm->size() - 1) {
            trainee.write_gradient(5, comm->rank(),
                                   1); // its first bucket leaves, the others do not
            trainee.optimizer().sharding()->grad_ready(trainee.stream(), 5);
            end();
        }
        const int64_t begin = now_ms();
        try {
            trainee.backward(1, true);
        } catch (const Error&) { // it was found by then
        }
        wrong += compute_until(settings, [&] { return !comm->status().ok(); })
                     ? ""
                     : " the thread did not find it";
        Status status;
        try {
            trainee.optimizer().step(trainee.stream(), nullptr);
        } catch (const Error& error) {
            status = error.status();
        }
        const int64_t took = now_ms() - begin;
        wrong += expect(status, {Code::timeout, Code::peer_lost, Code::mpi_error}, "");
        wrong +=
            took > settings.deadline_ms + 1000 ? " it took " + std::to_string(took) + " ms" : "";
        wrong += trainee.optimizer().read_state(trainee.stream()).step == 1 ? "" : " a step more";
        wrong += trainee.outcome().params == committed.params ? "" : " other weights";
        std::printf("%s after %lld ms\n", status.text(), static_cast<long long>(took));
    }
    return wrong;
}

std::string zero_killed(const Settings& settings) {
    return survive_training(settings, [] { (void)raise(SIGKILL); });
}

std::string zero_stopped(const Settings& settings) {
    return survive_training(settings, [&settings] { stop_for_good(settings); });
}

// A rank that never comes to the making: the others do not wait for ever.
std::string absent(const Settings& settings) {
    (void)MPI_Init(nullptr, nullptr);
    int rank = 0;
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(settings.deadline_ms + 1500));
        return "";
    }
    const int64_t begin = now_ms();
    try {
        (void)open(settings);
    } catch (const Error& error) {
        const int64_t took = now_ms() - begin;
        return expect(error.status(), {Code::timeout}, "within") +
               (took < settings.deadline_ms + 1000 ? "" : " too late");
    }
    return "it was made";
}

// Two groups of two, with the bits of one of four.
std::string hybrid(const Settings& settings) {
    Outcome outcomes[2];
    for (const int32_t shard_ranks : {0, 2}) {
        Training training = training_of(2, true);
        training.sharding.order = comm::SumOrder::tree;
        training.sharding.shard_ranks = shard_ranks;
        Trainee trainee(training, open(settings));
        trainee.optimizer().shard(trainee.stream());
        for (int32_t step = 0; step < 3; ++step) {
            trainee.backward(step, true);
            trainee.optimizer().step(trainee.stream(), nullptr);
        }
        outcomes[shard_ranks / 2] = trainee.outcome();
    }
    return outcomes[0].params == outcomes[1].params ? "" : "groups have other weights";
}

// The last rank is killed where it waits for its replica, rank 1, which comes later.
std::string hybrid_killed(const Settings& settings) {
    Training training = training_of(2, true);
    training.sharding.shard_ranks = 2;
    Trainee trainee(training, open(settings));
    trainee.optimizer().shard(trainee.stream());
    trainee.backward(0, true);
    trainee.optimizer().step(trainee.stream(), nullptr);
    const Outcome committed = trainee.outcome();
    trainee.backward(1, false);
    if (trainee.comm().rank() == 3) {
        std::thread([] {
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
            (void)raise(SIGKILL);
        }).detach();
    } else if (trainee.comm().rank() == 1) {
        trainee.optimizer().sharding()->end_microbatch(trainee.stream()); // what its group needs
        std::this_thread::sleep_for(std::chrono::milliseconds(700));
    }
    const int64_t begin = now_ms();
    std::string wrong = "it was not missed";
    try {
        trainee.optimizer().step(trainee.stream(), nullptr);
    } catch (const Error& error) {
        wrong = expect(error.status(), {Code::timeout, Code::peer_lost, Code::mpi_error}, "");
        std::printf("%s after %lld ms\n", error.status().text(),
                    static_cast<long long>(now_ms() - begin));
    }
    wrong += now_ms() - begin < settings.deadline_ms + 1000 ? "" : " too late";
    wrong += trainee.outcome().params == committed.params ? "" : " other weights";
    return wrong;
}

int run(const std::string& name, const Settings& settings) {
    const std::map<std::string, std::string (*)(const Settings&)> cases = {
        {"basics", basics},
        {"callers", callers},
        {"mismatch", mismatch},
        {"other", other_call},
        {"killed", killed},
        {"exited", exited},
        {"stopped", stopped},
        {"absent", absent},
        {"zero", zero},
        {"zero_serialized", zero_serialized},
        {"zero_killed", zero_killed},
        {"zero_stopped", zero_stopped},
        {"hybrid", hybrid},
        {"hybrid_killed", hybrid_killed}};
    std::string wrong;
    try {
        wrong = cases.at(name)(settings);
    } catch (const std::exception& error) {
        wrong = error.what();
    }
    const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
    rank = rank != nullptr ? rank : std::getenv("PMI_RANK");
    std::ofstream(settings.folder + "/rank" + (rank != nullptr ? rank : "0"))
        << (wrong.empty() ? "ok" : wrong);
    return wrong.empty() ? 0 : 1;
}

} // namespace
} // namespace mp::test

int main(int count, char** arguments) {
    if (count != 4) {
        (void)std::fprintf(stderr, "usage: %s CASE RESULT_FOLDER DEADLINE_MS\n", arguments[0]);
        return 2;
    }
    return mp::test::run(arguments[1], {arguments[2], std::atoll(arguments[3])});
}
