// SPDX-License-Identifier: Apache-2.0
// One rank under mpirun. What it found goes to a file of its own, since a launcher's exit code says little.
//
// usage: program CASE RESULT_FOLDER DEADLINE_MS [ARGUMENT_OF_THE_CASE...]
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
#include "context/module_loader.hpp"
#include "program.hpp"

namespace {

int freed_comms = 0;

} // namespace

// In place of MPI's, for the module too: what tools that profile MPI do.
extern "C" [[gnu::visibility("default")]] int MPI_Comm_free(MPI_Comm* comm) {
    ++freed_comms;
    return PMPI_Comm_free(comm);
}

namespace mp::test {

std::unique_ptr<Communicator> open(const Settings& settings, const void* native,
                                   std::shared_ptr<PlannedFault> fault) {
    TransportConfig config;
    config.native = native;
    config.deadline_ms = settings.deadline_ms;
    Transport* transport = nullptr;
    check(load_transport("mpi").create(config, &transport));
    std::unique_ptr<Transport> own(transport);
    if (fault != nullptr) {
        own = std::make_unique<FaultyTransport>(std::move(own), std::move(fault));
    }
    return std::make_unique<Communicator>(std::move(own), settings.deadline_ms);
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

void stop_for_good(const Settings& settings) {
    const pid_t self = getpid();
    if (fork() == 0) { // ends it when the others are through
        std::this_thread::sleep_for(std::chrono::milliseconds(2 * settings.deadline_ms + 2000));
        (void)kill(self, SIGKILL);
        _exit(0);
    }
    for (;;) { // also when the launcher, which ends what is left over, wakes it first
        (void)kill(self, SIGSTOP); // all its threads
    }
}

namespace {

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

// Below MPI_THREAD_MULTIPLE any thread may destroy a communicator, but MPI is called by the thread that uses it: by this one's
// next call. With MPI_THREAD_MULTIPLE it is called at once.
std::string destroyed_elsewhere(const Settings& settings) {
    int provided = MPI_THREAD_SINGLE;
    (void)MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    std::string wrong;
    {
        auto comm = open(settings);
        wrong = check_basics(*comm);
        std::thread([&comm] { comm.reset(); }).join();
        wrong += freed_comms == (provided == MPI_THREAD_MULTIPLE ? 1 : 0)
                     ? ""
                     : " another thread called MPI";
        const auto next = open(settings);
        wrong += freed_comms == 1 ? "" : " what was left is not done";
        wrong += check_basics(*next);
    }
    wrong += freed_comms == 2 ? "" : " its own thread left it";
    (void)MPI_Finalize();
    return wrong;
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
    std::string wrong = expect(comm->run(comm::AllToAll{data.data(), sent.data(), zeros.data(),
                                                        data.data(), bytes.data(), zeros.data()}),
                               {Code::rank_mismatch, Code::peer_lost, Code::ok}, "");
    // Rank 0 found it, and the others learn of it at the latest in their next call.
    const Status status = comm->run(comm::Barrier{});
    wrong += comm->rank() == 0 ? expect(status, {Code::rank_mismatch},
                                        "rank 1 sends 4 bytes, but this rank expects 5")
                               : expect(status, {Code::peer_lost}, "rank 0 gave up");
    return wrong;
}

std::string other_call(const Settings& settings) {
    const auto comm = open(settings);
    std::vector<uint32_t> values(3);
    const Status status =
        comm->rank() == 0 ? comm->run(comm::MaxU32{values.data(), 3}) : comm->run(comm::Barrier{});
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
        status = comm->run(describe(exchange));
    }
    const int64_t took = now_ms() - begin;
    wrong += expect(status, {Code::timeout, Code::peer_lost, Code::mpi_error}, "all_to_all #");
    const int64_t again = now_ms();
    wrong += comm->run(comm::Barrier{}).code() == status.code() ? "" : " the failure does not stay";
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

std::string stopped(const Settings& settings) {
    return survive(settings, [&settings] { stop_for_good(settings); });
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

int run(const std::string& name, const Settings& settings) {
    const std::map<std::string, Case> cases = {{"basics", basics},
                                               {"callers", callers},
                                               {"destroyed_elsewhere", destroyed_elsewhere},
                                               {"mismatch", mismatch},
                                               {"other", other_call},
                                               {"killed", killed},
                                               {"exited", exited},
                                               {"stopped", stopped},
                                               {"absent", absent},
                                               {"zero", zero},
                                               {"zero_invariant", zero_invariant},
                                               {"zero_disagrees", zero_disagrees},
                                               {"zero_serialized", zero_serialized},
                                               {"zero_killed", zero_killed},
                                               {"zero_stopped", zero_stopped},
                                               {"hybrid", hybrid},
                                               {"lost", lost},
                                               {"messages", messages}};
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
    if (count < 4) {
        (void)std::fprintf(stderr, "usage: %s CASE RESULT_FOLDER DEADLINE_MS [ARGUMENT...]\n",
                           arguments[0]);
        return 2;
    }
    return mp::test::run(
        arguments[1], {arguments[2], std::atoll(arguments[3]), {arguments + 4, arguments + count}});
}
