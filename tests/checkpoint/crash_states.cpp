// SPDX-License-Identifier: Apache-2.0
// Every state that a power failure during a save may leave, by the simulated file table: each loads the old checkpoint or
// the new one, whole; after a save that succeeded only the new one; and the next save works.
//
// usage: checkpoint_crash_states [gtest options]; MP_CRASH_SEEDS=n runs n interleavings of the ranks instead of 2.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <unordered_set>

#include "checkpoint/example_state.hpp"
#include "checkpoint/simulated_files.hpp"
#include "checkpoint/thread_ranks.hpp"

using namespace mp;
using namespace mp::checkpoint;
using namespace mp::test;

namespace {

constexpr std::size_t kMostPending =
    16; // 2^16 states at one point; more would be sampled, and said

struct Counts {
    int64_t points = 0;
    int64_t states = 0;
    int64_t distinct = 0;
    int64_t sampled_points = 0;
    int64_t old_ones = 0;
    int64_t new_ones = 0;
};

void save(system::FileTable& files, int32_t size, int64_t count, uint32_t version, int64_t chunk) {
    run_ranks(size, [&](Ranks& ranks) {
        ExampleState state(ranks.rank(), size, count, version);
        (void)save_checkpoint(ranks, files, state.catalog(), save_options("/c", version, chunk));
    });
}

// The version that loads, whole; 0 where there is none at all.
uint32_t version_in(SimulatedFiles& files, int64_t count) {
    Meeting meeting(1);
    ThreadRanks ranks(meeting, 0);
    ExampleState state(0, 1, count, 0);
    try {
        const Loaded loaded = load_checkpoint(ranks, files, state.catalog(), load_options("/c"));
        loaded.commit(state.catalog());
        const auto version = static_cast<uint32_t>(loaded.manifest().step);
        EXPECT_TRUE(state.is(version));
        EXPECT_EQ(loaded.skipped(), "") << "a committed checkpoint is damaged";
        return version;
    } catch (const Error&) {
        return 0;
    }
}

class Crashes {
  public:
    Crashes(int32_t size, int chunks, bool has_old, uint64_t seed)
        : size_(size), count_(chunks == 1 ? 60 : 400 * chunks), has_old_(has_old) {
        // So that a rank's file, header included, has so many chunks.
        const int64_t bytes = 900 + (11 * count_ / 2 + 200) / size;
        chunk_ = (bytes + chunks - 1) / chunks / 64 * 64 + 64;
        SimulatedFiles first;
        if (has_old) {
            save(first, size, count_, 1, chunk_);
        }
        before_ = first.nodes();
        SimulatedFiles files(before_);
        files.set_noise(seed);
        save(files, size, count_, 2, chunk_);
        journal_ = files.journal();
    }

    void run(Counts& counts) {
        for (std::size_t length = 0; length <= journal_.size(); ++length) {
            ++counts.points;
            const std::vector<std::size_t> pending = pending_ops(journal_, length);
            const bool all = pending.size() <= kMostPending;
            counts.sampled_points += all ? 0 : 1;
            const uint64_t most = uint64_t{1} << std::min(pending.size(), kMostPending);
            for (uint64_t i = 0; i < most; ++i) {
                const uint64_t kept = all ? i : i * 0x9E3779B97F4A7C15ULL;
                for (const bool torn : {false, true}) {
                    try_state(length, pending, kept, torn, counts);
                }
            }
        }
        // The save returned: nothing may be lost any more.
        const std::vector<std::size_t> pending = pending_ops(journal_, journal_.size());
        SimulatedFiles files(crash_state(before_, journal_, journal_.size(), pending, 0, false));
        EXPECT_EQ(version_in(files, count_), 2U);
    }

  private:
    void try_state(std::size_t length, const std::vector<std::size_t>& pending, uint64_t kept,
                   bool torn, Counts& counts) {
        ++counts.states;
        std::vector<Node> nodes = crash_state(before_, journal_, length, pending, kept, torn);
        if (!seen_.insert(tree_hash(nodes)).second) {
            return;
        }
        ++counts.distinct;
        SimulatedFiles files(std::move(nodes));
        const uint32_t version = version_in(files, count_);
        ASSERT_TRUE(version == 2 || version == (has_old_ ? 1U : 0U))
            << "after " << length << " operations, kept " << kept << (torn ? ", torn" : "");
        (version == 2 ? counts.new_ones : counts.old_ones) += 1;
        if (counts.distinct % 97 == 0) {
            save(files, 1, count_, 3, chunk_);
            ASSERT_EQ(version_in(files, count_), 3U);
        }
    }

    int32_t size_;
    int64_t count_;
    bool has_old_;
    int64_t chunk_ = 0;
    std::vector<Node> before_;
    std::vector<Op> journal_;
    std::unordered_set<uint64_t> seen_;
};

} // namespace

TEST(CrashStates, EveryOneOfASave) {
    const char* text = std::getenv("MP_CRASH_SEEDS");
    const int64_t seeds = text == nullptr ? 2 : std::strtoll(text, nullptr, 10);
    Counts counts;
    for (int32_t size = 1; size <= 3; ++size) {
        for (int chunks = 1; chunks <= 3; ++chunks) {
            for (int64_t seed = 1; seed <= (size == 1 ? 1 : seeds); ++seed) {
                for (const bool has_old : {false, true}) {
                    Crashes crashes(size, chunks, has_old, static_cast<uint64_t>(seed));
                    crashes.run(counts);
                }
            }
        }
        std::printf("%d rank(s): %lld points, %lld states so far\n", size,
                    static_cast<long long>(counts.points), static_cast<long long>(counts.states));
    }
    std::printf(
        "%lld crash points, %lld states, %lld different trees, %lld load the old, %lld the new; "
        "%lld points were sampled\n",
        static_cast<long long>(counts.points), static_cast<long long>(counts.states),
        static_cast<long long>(counts.distinct), static_cast<long long>(counts.old_ones),
        static_cast<long long>(counts.new_ones), static_cast<long long>(counts.sampled_points));
    EXPECT_GT(counts.old_ones, 100);
    EXPECT_GT(counts.new_ones, 10);
    EXPECT_GT(counts.states, 1794);
}

// The same harness sees a commit without syncs: the protocol is what makes the difference.
TEST(CrashStates, WithoutSyncsTheHarnessFindsBrokenStates) {
    SimulatedFiles files;
    save(files, 1, 400, 2, 1024);
    std::vector<Op> journal = files.journal();
    std::erase_if(journal, [](const Op& op) {
        return op.kind == JournalKind::sync || op.kind == JournalKind::sync_directory;
    });
    const std::vector<std::size_t> pending = pending_ops(journal, journal.size());
    int64_t broken = 0;
    for (uint64_t kept = 0; kept < (uint64_t{1} << pending.size()); ++kept) {
        SimulatedFiles crashed(
            crash_state(SimulatedFiles().nodes(), journal, journal.size(), pending, kept, false));
        std::vector<std::string> names;
        Meeting meeting(1);
        ThreadRanks ranks(meeting, 0);
        ExampleState state(0, 1, 400, 0);
        if (crashed.list("/c", &names).ok() && !names.empty() && names[0][0] == 's') {
            try {
                (void)load_checkpoint(ranks, crashed, state.catalog(), load_options("/c"));
            } catch (const Error&) {
                ++broken;
            }
        }
    }
    EXPECT_GT(broken, 10);
}
