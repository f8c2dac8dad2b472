// SPDX-License-Identifier: Apache-2.0
// A disk that is full, and a process that may write no longer files, by the system itself: a tmpfs of 1 MiB with any number
// of pages left, and RLIMIT_FSIZE. The save says so and leaves nothing; the checkpoint before it loads; with room again the
// next save works.
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/directory.hpp"
#include "checkpoint/example_state.hpp"
#include "checkpoint/thread_ranks.hpp"

using namespace mp;
using namespace mp::checkpoint;
using namespace mp::test;

namespace {

constexpr int64_t kCount = 20000; // 130 KB of state
constexpr int32_t kRanks = 2;
constexpr int kSkipped = 77;

// The words of the failure; empty where it worked.
std::string save(const std::string& folder, uint32_t version) {
    try {
        run_ranks(kRanks, [&](Ranks& ranks) {
            ExampleState state(ranks.rank(), kRanks, kCount, version);
            (void)save_checkpoint(ranks, system::posix_files(), state.catalog(),
                                  save_options(folder, version));
        });
    } catch (const Error& error) {
        return error.status().text();
    }
    return {};
}

bool has(const std::string& folder, uint32_t version, std::size_t names) {
    const std::unique_ptr<Ranks> ranks = make_ranks(nullptr);
    ExampleState state(0, 1, kCount, 0);
    load_checkpoint(*ranks, system::posix_files(), state.catalog(), load_options(folder))
        .commit(state.catalog());
    std::vector<std::string> there;
    check(system::posix_files().list(folder.c_str(), &there));
    return state.is(version) && there.size() == names;
}

// A failed expectation in the child is a failure of the test.
int in_child(int (*body)()) {
    std::fflush(stdout);
    const pid_t child = ::fork();
    if (child == 0) {
        const int result = body();
        std::fflush(stdout);
        ::_exit(result);
    }
    int status = 0;
    (void)::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool require(bool holds, const char* what, long number) {
    if (!holds) {
        std::fprintf(stderr, "%s: %ld\n", what, number);
    }
    return holds;
}

// A file system of this process alone, which goes with it.
bool mount_small(const std::string& folder) {
    if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
        return false;
    }
    return ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=1m") == 0;
}

constexpr long kPage = 4096;

// All but so many pages.
bool fill_up(const std::string& path, long pages) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT, 0600);
    const std::vector<char> page(kPage);
    while (::write(file, page.data(), page.size()) > 0) {
    }
    const off_t size = ::lseek(file, 0, SEEK_END);
    return ::ftruncate(file, std::max<off_t>(0, size - pages * kPage)) == 0 && ::close(file) == 0;
}

int fill_disk() {
    std::string folder = "/tmp/mp_full_XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr || !mount_small(folder)) {
        std::fprintf(stderr, "no file system can be mounted here: %s\n", std::strerror(errno));
        (void)::rmdir(folder.c_str());
        return kSkipped;
    }
    const std::string checkpoints = folder + "/c";
    const std::string filler = folder + "/filler";
    bool good = require(save(checkpoints, 1).empty(), "the first save", 0);
    long failed = 0;
    long pages = 0;
    for (bool is_full = true; is_full && good; ++pages) {
        good = fill_up(filler, pages);
        const std::string words = save(checkpoints, 2);
        is_full = !words.empty();
        failed += is_full ? 1 : 0;
        good = good &&
               require(has(checkpoints, is_full ? 1 : 2, is_full ? 1 : 2), "pages", pages) &&
               require(!is_full || words.find("No space left") != std::string::npos, words.c_str(),
                       pages) &&
               ::unlink(filler.c_str()) == 0;
    }
    good = good && require(save(checkpoints, 3).empty(), "a save with room again", pages) &&
           require(has(checkpoints, 3, 3), "what is there then", pages) &&
           require(failed > 20, "saves that met a full disk", failed);
    std::printf("a save met a full disk with 0 to %ld pages left\n", failed - 1);
    return good ? 0 : 1;
}

int limit_files() {
    std::string folder = "/tmp/mp_limit_XXXXXX";
    (void)std::signal(SIGXFSZ, SIG_IGN); // the program's own choice: EFBIG instead of its end
    bool good = ::mkdtemp(folder.data()) != nullptr;
    const std::string checkpoints = folder + "/c";
    good = good && require(save(checkpoints, 1).empty(), "the first save", 0);
    long failed = 0;
    for (const rlim_t limit : {0, 1, 100, 4096, 30000, 60000}) {
        const rlimit small = {limit, RLIM_INFINITY};
        const rlimit large = {RLIM_INFINITY, RLIM_INFINITY};
        good = good && ::setrlimit(RLIMIT_FSIZE, &small) == 0;
        const std::string words = save(checkpoints, 2);
        good = good && ::setrlimit(RLIMIT_FSIZE, &large) == 0;
        good = good &&
               require(words.find("File too large") != std::string::npos, words.c_str(),
                       static_cast<long>(limit)) &&
               require(has(checkpoints, 1, 1), "limit", static_cast<long>(limit));
        ++failed;
    }
    good = good && require(save(checkpoints, 2).empty() && has(checkpoints, 2, 2), "no limit", 0);
    for (const Committed& one : list_committed(system::posix_files(), checkpoints)) {
        discard(system::posix_files(), open_parent(system::posix_files(), checkpoints).handle(),
                one.name);
    }
    return good && ::rmdir(checkpoints.c_str()) == 0 && ::rmdir(folder.c_str()) == 0 ? 0 : 1;
}

} // namespace

TEST(DiskFull, WithEveryNumberOfPagesLeft) {
    const int result = in_child(fill_disk);
    if (result == kSkipped) {
        GTEST_SKIP() << "NOT TESTED: a full disk, since nothing can be mounted here";
    }
    EXPECT_EQ(result, 0);
}

TEST(DiskFull, WhereFilesMayNotGrow) { EXPECT_EQ(in_child(limit_files), 0); }
