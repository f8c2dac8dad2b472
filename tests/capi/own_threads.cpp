// SPDX-License-Identifier: Apache-2.0
// The library's threads: they have names for debuggers, and leave the program's signals to the program.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "bits_training.hpp"

using namespace mp_test;
using namespace mp_test::bits;

namespace {

struct ThreadStatus {
    std::string name;
    uint64_t blocked = 0; // signals, a bit each
};

ThreadStatus status_of(const std::filesystem::path& task) {
    ThreadStatus status;
    std::ifstream file(task / "status");
    for (std::string line; std::getline(file, line);) {
        if (line.rfind("Name:\t", 0) == 0) {
            status.name = line.substr(6);
        } else if (line.rfind("SigBlk:\t", 0) == 0) {
            status.blocked = std::stoull(line.substr(8), nullptr, 16);
        }
    }
    return status;
}

bool blocks(const ThreadStatus& status, int signal) {
    return (status.blocked & (uint64_t{1} << (signal - 1))) != 0;
}

void expect_signals_left_alone(const std::filesystem::path& task, ThreadStatus status) {
    // The C library blocks all while a thread begins, which takes as long as the machine is busy.
    for (int wait = 0; blocks(status, SIGSEGV) && wait < 6000; ++wait) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        status.blocked = status_of(task).blocked;
    }
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGALRM, SIGCHLD}) {
        EXPECT_TRUE(blocks(status, signal)) << status.name << " takes signal " << signal;
    }
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
        EXPECT_FALSE(blocks(status, fault))
            << status.name << " dies of signal " << fault << " past the program's handler";
    }
}

using Names = std::map<std::string, int>;

// How many threads of the library there are, by their names; signals that one of them may take are a failure.
Names threads_of_the_library() {
    Names names;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        const ThreadStatus status = status_of(task.path());
        if (status.name.rfind("mixedprec", 0) == 0) {
            ++names[status.name];
            expect_signals_left_alone(task.path(), status);
        }
    }
    return names;
}

// Who starts a thread names it, and it may have begun before: on a busy machine long before.
Names threads_when(const Names& expected) {
    Names names = threads_of_the_library();
    for (int wait = 0; names != expected && wait < 6000; ++wait) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        names = threads_of_the_library();
    }
    return names;
}

const Names kDuringASave = {{"mixedprec", 2}, {"mixedprec-save", 1}};

} // namespace

TEST(OwnThreads, OfLoopsAndOfASaveInTheBackground) {
    static Names during; // of the save, by its own progress function
    const Folder folder("own_threads");
    mp_checkpoint_desc desc = MP_CHECKPOINT_DESC_INIT;
    desc.progress = [](int64_t, int64_t, void*) { during = threads_when(kDuringASave); };
    Training training(make_context(3), "fp32", 3, nullptr, &desc);
    const Tensor a = make_tensor(training.context, MP_DTYPE_FP32, {1 << 20});
    const Tensor b = make_tensor(training.context, MP_DTYPE_BF16, {1 << 20});
    MP_OK(mp_tensor_cast(a, nullptr, b, nullptr));
    EXPECT_EQ(threads_when({{"mixedprec", 2}}), (Names{{"mixedprec", 2}}));
    MP_OK(mp_checkpoint_save(training.checkpoint, folder.c_str(), 1, MP_SAVE_BACKGROUND));
    MP_OK(mp_checkpoint_wait(training.checkpoint));
    EXPECT_EQ(during, kDuringASave);
}

TEST(OwnThreads, OfShardedOptimizers) {
    Configuration c{};
    c[kTransport] = kThreadRanks;
    c[kRanks] = 1; // two
    c[kStage] = 2;
    Collected collected;
    on_ranks(c, collected, [&](int32_t rank, mp_comm* comm) {
        Trainer trainer(c, rank, comm, 50);
        trainer.train(0, 1, collected);
        check(mp_comm_barrier(comm, nullptr)); // both have theirs
        EXPECT_EQ(threads_when({{"mixedprec-ranks", 2}}), (Names{{"mixedprec-ranks", 2}}));
        check(mp_comm_barrier(comm, nullptr));
    });
    EXPECT_TRUE(collected.take().errors.empty());
}
