// SPDX-License-Identifier: Apache-2.0
// kill -9 while saving on a real file system, at random times: what loads afterwards is a whole version, never older
// than one that had been reported as saved; the next save removes what the dead left. (It does not test power failure: the
// kernel keeps what was written. crash_states.cpp does.)
//
// usage: checkpoint_kill [TRIALS [FOLDER]]
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/directory.hpp"
#include "checkpoint/example_state.hpp"
#include "checkpoint/thread_ranks.hpp"

using namespace mp;
using namespace mp::checkpoint;
using namespace mp::test;

namespace {

constexpr int64_t kCount = 20000;

// In the child: saves version after version, on 1 to 3 ranks in turn, until it is killed.
[[noreturn]] void save_for_ever(const std::string& folder, uint32_t version,
                                volatile uint32_t* reported) {
    for (;; ++version) {
        const auto size = static_cast<int32_t>(version % 3 + 1);
        run_ranks(size, [&](Ranks& ranks) {
            ExampleState state(ranks.rank(), size, kCount, version);
            SaveOptions options = save_options(folder, version, 16384);
            options.keep = 3;
            (void)save_checkpoint(ranks, system::posix_files(), state.catalog(), options);
        });
        *reported = version;
    }
}

// The version that loads; 0 where there is none. Ends the program where it is a mixture.
uint32_t load(const std::string& folder) {
    const std::unique_ptr<Ranks> ranks = make_ranks(nullptr);
    ExampleState state(0, 1, kCount, 0);
    LoadOptions options = load_options(folder);
    options.verify_all = true;
    try {
        const Loaded loaded =
            load_checkpoint(*ranks, system::posix_files(), state.catalog(), options);
        loaded.commit(state.catalog());
        const auto version = static_cast<uint32_t>(loaded.manifest().step);
        if (!state.is(version) || !loaded.skipped().empty()) {
            std::fprintf(stderr, "version %u is not whole: %s\n", version,
                         loaded.skipped().c_str());
            std::exit(1);
        }
        return version;
    } catch (const Error& error) {
        std::vector<std::string> names;
        if (system::posix_files().list(folder.c_str(), &names).ok() &&
            !list_committed(system::posix_files(), folder).empty()) {
            std::fprintf(stderr, "unreadable: %s\n", error.status().text());
            std::exit(1);
        }
        return 0;
    }
}

// A child saves until it is killed, after a while of this length. False where it ended by itself.
bool kill_while_saving(const std::string& folder, uint32_t first, volatile uint32_t* reported,
                       useconds_t micros) {
    const pid_t child = ::fork();
    if (child == 0) {
        save_for_ever(folder, first, reported);
    }
    ::usleep(micros);
    (void)::kill(child, SIGKILL);
    int status = 0;
    (void)::waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

int run(int argc, char** argv) {
    const long trials = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 200;
    const std::string folder = (argc > 2 ? std::string(argv[2]) : std::string("/tmp")) +
                               "/mp_kill_" + std::to_string(::getpid());
    auto* reported = static_cast<volatile uint32_t*>(::mmap(
        nullptr, sizeof(uint32_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    std::mt19937_64 random(20261121);
    uint32_t version = 0;
    long saves = 0;
    long with_leftovers = 0;
    long kills_since = 0; // the last save whose cleaning was done; each leaves one name at most
    long most = 0;        // names beside those
    for (long trial = 0; trial < trials; ++trial) {
        *reported = version;
        const auto micros = static_cast<useconds_t>(random() % 30000);
        if (!kill_while_saving(folder, version + 1, reported, micros)) {
            std::fprintf(stderr, "trial %ld: the child ended by itself\n", trial);
            return 1;
        }
        const uint32_t loaded = load(folder);
        if (loaded < *reported) {
            std::fprintf(stderr, "trial %ld: %u was saved but %u loads\n", trial, *reported,
                         loaded);
            return 1;
        }
        saves += loaded - version;
        // A child cleans up after each save, so before a second one is there.
        kills_since = loaded < version + 2 ? kills_since + 1 : 0;
        version = loaded;
        std::vector<std::string> names;
        if (system::posix_files().list(folder.c_str(), &names).ok()) {
            most = std::max(most, static_cast<long>(names.size()) - kills_since);
            with_leftovers += std::any_of(names.begin(), names.end(),
                                          [](const std::string& n) { return n[0] == '.'; });
        }
    }
    std::printf("%ld kills, %ld saves, %ld left something half done, 0 unreadable, 0 mixed\n",
                trials, saves, with_leftovers);
    for (int i = 0; i < 2; ++i) { // the second time there are no leftovers any more
        const std::unique_ptr<Ranks> ranks = make_ranks(nullptr);
        ExampleState state(0, 1, kCount, ++version);
        SaveOptions options = save_options(folder, version);
        options.keep = 1;
        (void)save_checkpoint(*ranks, system::posix_files(), state.catalog(), options);
    }
    std::vector<std::string> names;
    check(system::posix_files().list(folder.c_str(), &names));
    if (names.size() != 1 || most > 12) {
        std::fprintf(stderr, "%zu names are left, and %ld more were there than killed\n",
                     names.size(), most);
        return 1;
    }
    discard(system::posix_files(), open_parent(system::posix_files(), folder).handle(), names[0]);
    return ::rmdir(folder.c_str()) == 0 && with_leftovers > 0 ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
