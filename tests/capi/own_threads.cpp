// SPDX-License-Identifier: Apache-2.0
// The library's threads: they have names for debuggers, and leave the program's signals to the program.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

#include "bits_training.hpp"

using namespace mp_test;
using namespace mp_test::bits;

namespace {

// How many threads of the library there are, by their names; signals that one of them may take are a failure.
std::map<std::string, int> threads_of_the_library() {
    std::map<std::string, int> names;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        std::ifstream file(task.path() / "status");
        for (std::string line; std::getline(file, line);) {
            if (line.rfind("Name:\t", 0) == 0) {
                name = line.substr(6);
                if (name.rfind("mixedprec", 0) != 0) {
                    break;
                }
                ++names[name];
            }
            if (line.rfind("SigBlk:\t", 0) == 0) {
                const uint64_t blocked = std::stoull(line.substr(8), nullptr, 16);
                for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGALRM, SIGCHLD}) {
                    EXPECT_NE(blocked & (uint64_t{1} << (signal - 1)), 0U)
                        << name << " takes signal " << signal;
                }
                for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
                    EXPECT_EQ(blocked & (uint64_t{1} << (fault - 1)), 0U)
                        << name << " dies of signal " << fault << " past the program's handler";
                }
            }
        }
    }
    return names;
}

using Names = std::map<std::string, int>;

} // namespace

TEST(OwnThreads, OfLoopsAndOfASaveInTheBackground) {
    static Names during; // of the save, by its own progress function
    const Folder folder("own_threads");
    mp_checkpoint_desc desc = MP_CHECKPOINT_DESC_INIT;
    desc.progress = [](int64_t, int64_t, void*) { during = threads_of_the_library(); };
    Training training(make_context(3), "fp32", 3, nullptr, &desc);
    const Tensor a = make_tensor(training.context, MP_DTYPE_FP32, {1 << 20});
    const Tensor b = make_tensor(training.context, MP_DTYPE_BF16, {1 << 20});
    MP_OK(mp_tensor_cast(a, nullptr, b, nullptr));
    EXPECT_EQ(threads_of_the_library(), (Names{{"mixedprec", 2}}));
    MP_OK(mp_checkpoint_save(training.checkpoint, folder.c_str(), 1, MP_SAVE_BACKGROUND));
    MP_OK(mp_checkpoint_wait(training.checkpoint));
    EXPECT_EQ(during, (Names{{"mixedprec", 2}, {"mixedprec-save", 1}}));
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
        EXPECT_EQ(threads_of_the_library(), (Names{{"mixedprec-ranks", 2}}));
        check(mp_comm_barrier(comm, nullptr));
    });
    EXPECT_TRUE(collected.take().errors.empty());
}
