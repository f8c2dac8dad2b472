// SPDX-License-Identifier: Apache-2.0
// Every call of the file table fails once, or from then on; every allocation fails. A save then says so and leaves the
// checkpoint before it; a load leaves the live state.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <unistd.h>

#include "allocations.hpp"
#include "checkpoint/directory.hpp"
#include "checkpoint/example_state.hpp"
#include "checkpoint/simulated_files.hpp"
#include "checkpoint/thread_ranks.hpp"

using namespace mp;
using namespace mp::checkpoint;
using namespace mp::test;

namespace {

constexpr int64_t kCount = 600;

void save(SimulatedFiles& files, int32_t size, uint32_t version) {
    run_ranks(size, [&](Ranks& ranks) {
        ExampleState state(ranks.rank(), size, kCount, version);
        (void)save_checkpoint(ranks, files, state.catalog(), save_options("/c", version));
    });
}

uint32_t version_in(SimulatedFiles& files) {
    Meeting meeting(1);
    ThreadRanks ranks(meeting, 0);
    ExampleState state(0, 1, kCount, 0);
    const Loaded loaded = load_checkpoint(ranks, files, state.catalog(), load_options("/c"));
    loaded.commit(state.catalog());
    const auto version = static_cast<uint32_t>(loaded.manifest().step);
    EXPECT_TRUE(state.is(version));
    return version;
}

struct Counts {
    int64_t calls = 0;
    int64_t failed = 0;
};

Counts fail_every_call(int32_t size, Fault fault, bool for_ever) {
    Counts counts;
    for (int64_t k = 1;; ++k) {
        SimulatedFiles files;
        save(files, size, 1);
        files.fail_at(k, fault, for_ever);
        bool saved = true;
        try {
            save(files, size, 2);
        } catch (const Error& error) {
            saved = false;
            EXPECT_NE(error.status().text()[0], '\0');
        }
        const bool reached = files.calls() >= k;
        files.fail_at(0, Fault::none);
        EXPECT_EQ(files.open_handles(), 0) << k;
        const uint32_t version = version_in(files);
        if (saved) {
            EXPECT_EQ(version, 2U) << k;
        } else {
            ++counts.failed; // after the rename the new one is there although the save failed
        }
        save(files, size, 3); // and the next save works
        EXPECT_EQ(version_in(files), 3U) << k;
        if (!reached) {
            return counts;
        }
        counts.calls = k;
    }
}

} // namespace

TEST(Faults, EveryFileCallOfASave) {
    for (const int32_t size : {1, 2}) {
        for (const Fault fault : {Fault::error, Fault::torn}) {
            for (const bool for_ever : {false, true}) {
                const Counts counts = fail_every_call(size, fault, for_ever);
                EXPECT_GT(counts.failed, 10);
                std::printf(
                    "%d rank(s), fault %d, %s: %lld calls failed in turn, %lld saves failed\n",
                    size, static_cast<int>(fault), for_ever ? "for ever" : "once",
                    static_cast<long long>(counts.calls), static_cast<long long>(counts.failed));
            }
        }
    }
}

TEST(Faults, EveryFileCallOfALoad) {
    int64_t calls = 0;
    SimulatedFiles files;
    save(files, 3, 1);
    for (int64_t k = 1;; ++k) {
        files.fail_at(k, Fault::error);
        ExampleState state(0, 1, kCount, 0);
        Meeting meeting(1);
        ThreadRanks ranks(meeting, 0);
        bool loaded = true;
        try {
            (void)load_checkpoint(ranks, files, state.catalog(), load_options("/c"));
        } catch (const Error&) {
            loaded = false;
        }
        EXPECT_TRUE(state.is(0));
        EXPECT_EQ(files.open_handles(), 0);
        if (files.calls() < k) {
            EXPECT_TRUE(loaded);
            break;
        }
        calls = k;
    }
    std::printf("%lld calls failed in turn\n", static_cast<long long>(calls));
}

TEST(Faults, EveryAllocationOfASaveAndALoad) {
    for (const bool for_ever : {false, true}) {
        int64_t failures = 0;
        for (int64_t k = 0;; ++k) {
            SimulatedFiles files;
            save(files, 1, 1);
            ExampleState state(0, 1, kCount, 2);
            ExampleState target(0, 1, kCount, 0);
            const SaveOptions to = save_options("/c", 2);
            const LoadOptions from = load_options("/c");
            Meeting meeting(1);
            ThreadRanks ranks(meeting, 0);
            bool saved = false;
            bool committed = false;
            allocations_left = k;
            fails_for_ever = for_ever;
            try {
                (void)save_checkpoint(ranks, files, state.catalog(), to);
                saved = true;
                const Loaded loaded = load_checkpoint(ranks, files, target.catalog(), from);
                committed = true; // what is left is copies
                loaded.commit(target.catalog());
            } catch (const Error&) {
            } catch (const std::bad_alloc&) {
            }
            const bool done = allocations_left > 0;
            allocations_left = -1;
            EXPECT_EQ(files.open_handles(), 0) << k;
            EXPECT_TRUE(target.is(committed ? 2 : 0)) << k;
            const uint32_t version = version_in(files);
            EXPECT_TRUE(saved ? version == 2 : version == 1 || version == 2) << k;
            if (done) {
                EXPECT_TRUE(committed);
                break;
            }
            ++failures;
        }
        std::printf("%lld allocations failed in turn, %s\n", static_cast<long long>(failures),
                    for_ever ? "and all after" : "once each");
    }
}

// EINTR and partial transfers, by replaced system calls under the real table.
TEST(Faults, InterruptedAndPartialTransfers) {
    static std::atomic<int> calls{0};
    system::FileCalls odd = system::posix_calls();
    odd.read = [](int handle, void* data, std::size_t bytes, int64_t offset) -> std::ptrdiff_t {
        if (++calls % 3 == 0) {
            errno = EINTR;
            return -1;
        }
        return system::posix_calls().read(handle, data, bytes > 7 ? 7 : bytes, offset);
    };
    odd.write = [](int handle, const void* data, std::size_t bytes,
                   int64_t offset) -> std::ptrdiff_t {
        if (++calls % 4 == 0) {
            errno = EINTR;
            return -1;
        }
        return system::posix_calls().write(handle, data, bytes > 5 ? 5 : bytes, offset);
    };
    const std::unique_ptr<system::FileTable> files = system::make_posix_files(odd);
    const std::string folder = ::testing::TempDir() + "mp_faults_" + std::to_string(::getpid());
    Meeting meeting(1);
    ThreadRanks ranks(meeting, 0);
    ExampleState state(0, 1, kCount, 5);
    const std::string path =
        save_checkpoint(ranks, *files, state.catalog(), save_options(folder, 5));
    ExampleState target(0, 1, kCount, 0);
    load_checkpoint(ranks, *files, target.catalog(), load_options(path)).commit(target.catalog());
    EXPECT_TRUE(target.is(5));
    EXPECT_GT(calls.load(), 1000);

    static int syncs = 0; // a failed sync is final: it is not tried again on the same file
    odd.sync = [](int /*handle*/) {
        ++syncs;
        errno = EIO;
        return -1;
    };
    const std::unique_ptr<system::FileTable> unsynced = system::make_posix_files(odd);
    EXPECT_THROW((void)save_checkpoint(ranks, *unsynced, state.catalog(), save_options(folder, 6)),
                 Error);
    EXPECT_EQ(syncs, 1);
    discard(*files, open_parent(*files, folder).handle(), path.substr(folder.size() + 1));
    EXPECT_EQ(std::remove(folder.c_str()), 0);
}
