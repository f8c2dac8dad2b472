// SPDX-License-Identifier: Apache-2.0
// The machine for blocks finds what is wrong with kernels of which that is known, names it, and says nothing of others.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "known_kernels.hpp"
#include "machine/machine.hpp"

namespace mp::blocks {
namespace {

// Words of device memory, gone with the test.
class Words {
  public:
    Words(const char* name, std::size_t count)
        : count_(count), data_(static_cast<uint32_t*>(device_memory().allocate(4 * count))) {
        device_memory().narrow(data_, 4 * count, name);
    }
    Words(const char* name, const std::vector<uint32_t>& values) : Words(name, values.size()) {
        std::memcpy(data_, values.data(), 4 * count_);
        device_memory().mark_written(data_, 4 * count_);
    }
    ~Words() { device_memory().release(data_); }
    Words(const Words&) = delete;
    Words& operator=(const Words&) = delete;

    [[nodiscard]] uint32_t* data() const { return data_; }
    [[nodiscard]] uint32_t operator[](std::size_t i) const { return data_[i]; }

  private:
    std::size_t count_;
    uint32_t* data_;
};

std::vector<uint32_t> counting(std::size_t count) {
    std::vector<uint32_t> values(count);
    std::iota(values.begin(), values.end(), 0U);
    return values;
}

class Known : public ::testing::Test {
  protected:
    using Start = bool (*)(const KnownLaunch& how, uint32_t* out, const uint32_t* in);

    // The one launch since the last.
    Report run(Start start, const KnownLaunch& how) {
        (void)take_reports();
        went_on_ = start(how, out_.data(), in_.data());
        std::vector<Report> reports = take_reports();
        EXPECT_EQ(reports.size(), 1U);
        return reports.empty() ? Report() : reports[0];
    }
    void expect_clean(Start start, const KnownLaunch& how) {
        const Report report = run(start, how);
        EXPECT_EQ(report.text(), "");
        EXPECT_TRUE(went_on_);
    }
    // One finding that says all of this; the launch goes on unless the fault ends it.
    void expect_fault(Start start, const KnownLaunch& how, Fault fault,
                      const std::vector<std::string>& words) {
        const Report report = run(start, how);
        ASSERT_EQ(report.findings.size(), 1U) << report.text();
        EXPECT_EQ(report.findings[0].fault, fault) << report.text();
        EXPECT_EQ(went_on_, fault == Fault::race || fault == Fault::unwritten);
        for (const std::string& word : words) {
            EXPECT_NE(report.text().find(word), std::string::npos)
                << "no \"" << word << "\" in: " << report.text();
        }
    }

    Words in_{"in", counting(4096)};
    Words out_{"out", 4096};
    bool went_on_ = false;
};

TEST_F(Known, ASumWithBarriersIsClean) {
    expect_clean(launch_sum_with_barrier, {1, 64});
    EXPECT_EQ(out_[3], 3U + 35U);
}

TEST_F(Known, ARaceInSharedMemoryIsFound) {
    // Thread 0 reads what thread 32 has not written yet; that one, which comes later, is at fault in both ways.
    const Report report = run(launch_sum_without_barrier, {});
    ASSERT_EQ(report.findings.size(), 3U) << report.text();
    EXPECT_EQ(report.kernel, "sum_without_barrier");
    const std::string text = report.text();
    for (const char* words :
         {"unwritten: sum_without_barrier, block 0, thread 0 loads 4 bytes at shared values+128",
          "race: sum_without_barrier, block 0, thread 32 stores 4 bytes at shared values+128, "
          "which thread 0 accesses too, and no barrier is between, in sum_without_barrier",
          "race: sum_without_barrier, block 0, thread 32 loads 4 bytes at shared values+0, which "
          "thread 0 accesses too"}) {
        EXPECT_NE(text.find(words), std::string::npos) << text;
    }
}

TEST_F(Known, AShuffleOrdersNoMemoryAndTheWarpsBarrierDoes) {
    expect_clean(launch_warp_exchange, {1, 64, 0, 1});
    EXPECT_EQ(out_[6], 7U);
    expect_fault(launch_warp_exchange, {1, 64, 0, 0}, Fault::race,
                 {"thread 0 loads 4 bytes at shared values+4, which thread 1 accesses"});
}

TEST_F(Known, ARaceBetweenBlocksIsFound) {
    expect_clean(launch_one_place_by_all_blocks, {1, 32});
    expect_fault(launch_one_place_by_all_blocks, {3, 32}, Fault::race,
                 {"block 1, thread 3 stores 4 bytes at out+0, which block 0, thread 3"});
    expect_fault(launch_read_what_others_write, {2, 32}, Fault::race,
                 {"block 1, thread 0 stores 4 bytes at in+0, which block 0, thread 31"});
}

TEST_F(Known, AtomicsAreNoRace) {
    std::memset(out_.data(), 0, 4);
    device_memory().mark_written(out_.data(), 4);
    expect_clean(launch_count_by_atomics, {3, 64});
    EXPECT_EQ(out_[0], 3U * (63U * 64U / 2U));
}

TEST_F(Known, AnAtomicOnWhatNobodyWroteIsFound) {
    expect_fault(launch_count_by_atomics, {1, 64}, Fault::unwritten,
                 {"thread 0 changes 4 bytes at out+0, which nobody wrote"});
}

TEST_F(Known, AReadOfWhatNobodyWroteIsFound) {
    // The block before wrote it, which does not count.
    expect_clean(launch_read_shared_unwritten, {1, 64});
    expect_fault(launch_read_shared_unwritten, {2, 64}, Fault::unwritten,
                 {"block 1, thread 63 loads 4 bytes at shared values+252"});
    const Words nobodys("nobodys", 64);
    (void)launch_strided({1, 64, 0, 1}, out_.data(), nobodys.data());
    const std::vector<Report> reports = take_reports();
    ASSERT_EQ(reports.size(), 1U);
    ASSERT_EQ(reports[0].findings.size(), 1U);
    EXPECT_EQ(reports[0].findings[0].fault, Fault::unwritten);
    EXPECT_EQ(reports[0].findings[0].times, 64);
}

TEST_F(Known, OutOfBoundsIsFoundAndEndsTheLaunch) {
    expect_fault(launch_strided, {128, 64, 0, 1}, Fault::out_of_bounds,
                 {"block 64, thread 0 loads 4 bytes at in+16384, where in has 16384 bytes"});
    expect_fault(launch_strided, {1, 64, 0, -1}, Fault::out_of_bounds, {"thread 1", "in-4,"});
    expect_fault(launch_shared_beyond, {1, 64, 0, 0}, Fault::out_of_bounds,
                 {"thread 5 stores 4 bytes at shared values+256",
                  "which is in no shared array of the kernel's"});
    expect_fault(launch_shared_beyond, {1, 64, 256, 64}, Fault::out_of_bounds,
                 {"thread 5 stores 4 bytes at shared mp_dynamic_shared+256"});
    device_memory().narrow(in_.data(), 4 * 63, "in");
    expect_fault(launch_strided, {1, 64, 0, 1}, Fault::out_of_bounds, {"thread 63", "252 bytes"});
}

TEST_F(Known, MisalignedAccessesAreFound) {
    expect_clean(launch_misaligned, {1, 1, 0, 4});
    expect_fault(launch_misaligned, {1, 1, 0, 2}, Fault::misaligned, {"loads 16 bytes at in+8"});
}

TEST_F(Known, WritingTheProgramsVariablesIsFound) {
    expect_fault(launch_write_program, {1, 1}, Fault::read_only, {"thread 0 stores 4 bytes"});
}

TEST_F(Known, DivergentBarriersAreFound) {
    expect_fault(
        launch_barrier_for_some, {1, 64, 0, 0}, Fault::divergent,
        {"block 0, thread 0 waits at the barrier known_kernels.cu:", "; thread 40 has ended"});
    expect_fault(launch_barrier_for_some, {1, 64, 0, 1}, Fault::divergent,
                 {"thread 0 waits at the barrier", "; thread 40 waits at the barrier"});
    expect_clean(launch_barrier_for_some, {1, 40, 0, 0});
}

TEST_F(Known, BarriersCount) {
    expect_clean(launch_two_barriers, {1, 64});
    EXPECT_EQ(out_[0], 53U * 10U + 1U);
}

TEST_F(Known, OperationsOfWarpsThatNotAllReachAreFound) {
    expect_fault(launch_shuffle_without_some, {1, 32, 0, 0}, Fault::divergent,
                 {"thread 0 waits for the lanes 0xffffffff at", "; thread 9 has ended"});
    expect_fault(launch_shuffle_without_some, {1, 32, 0, 1}, Fault::divergent,
                 {"thread 1 shuffles from a lane that is not in its mask"});
    expect_fault(launch_shuffle_without_some, {1, 32, 0, 2}, Fault::divergent,
                 {"thread 1 is not in the mask that it gives"});
    // A block of 20 threads has no lane 20.
    expect_fault(launch_warp_exchange, {1, 20, 0, 1}, Fault::divergent,
                 {"whose mask has lanes that the block does not have"});
}

TEST_F(Known, OperationsOfWarpsGiveWhatTheyShould) {
    expect_clean(launch_lane_operations, {1, 32});
    const auto of = [&](uint32_t lane, uint32_t which) { return out_[12 * lane + which]; };
    EXPECT_EQ(of(9, 0), 5U);
    EXPECT_EQ(of(2, 1), 2U);
    EXPECT_EQ(of(9, 1), 6U);
    EXPECT_EQ(of(8, 2), 11U);
    EXPECT_EQ(of(13, 2), 13U);
    EXPECT_EQ(of(4, 3), 13U);
    EXPECT_EQ(of(0, 4), 0x49249249U);
    EXPECT_EQ(of(0, 5), 1U);
    EXPECT_EQ(of(0, 6), 0U);
    EXPECT_EQ(of(1, 7), 31U);
    EXPECT_EQ(of(1, 8), 0U);
    EXPECT_EQ(of(1, 9), 31U * 32U / 2U);
    EXPECT_EQ(of(1, 10), 31U);
    EXPECT_EQ(of(3, 11), 2U);
    EXPECT_EQ(of(30, 11), 18U);
}

TEST_F(Known, LaunchesThatCannotRunAreRefused) {
    for (const KnownLaunch& how : {KnownLaunch{0, 32}, KnownLaunch{1, 1025}, KnownLaunch{1, 0},
                                   KnownLaunch{1, 32, std::size_t{228} << 10}}) {
        expect_fault(launch_strided, how, Fault::configuration, {"cannot run: "});
    }
}

TEST_F(Known, SectorsAreCounted) {
    // 32 lanes x 4 bytes are 4 sectors; two words apart 8; eight, a sector for each lane.
    for (const int64_t stride : {1, 2, 8, 16}) {
        const Report report = run(launch_strided, {1, 64, 0, stride});
        const int64_t sectors = std::min<int64_t>(32, 4 * stride);
        EXPECT_EQ(report.counters.loads, (Traffic{2, 2 * sectors, 8, 2 * sectors})) << stride;
        EXPECT_EQ(report.counters.stores, (Traffic{2, 8, 8, 8})) << stride;
    }
    // All lanes want the same word.
    EXPECT_EQ(run(launch_strided, {1, 64, 0, 0}).counters.loads, (Traffic{2, 2, 2, 2}));
    // Of a warp that is not whole.
    const Report part = run(launch_strided, {1, 20, 0, 1});
    EXPECT_EQ(part.counters.loads, (Traffic{1, 3, 3, 3}));
}

TEST_F(Known, BankConflictsAreCounted) {
    constexpr std::size_t kRoom = std::size_t{4} * 32 * 40;
    // Rows of 32 words: a column lies in one bank. Of 34: in 16 banks, two of it in each. Of 33: in all.
    for (const auto& [row, ways] :
         {std::pair<int64_t, int64_t>{32, 32}, {34, 2}, {36, 4}, {33, 1}}) {
        const Report report = run(launch_transpose, {1, 128, kRoom, row});
        EXPECT_EQ(report.text(), "");
        EXPECT_EQ(out_[32 * 3 + 5], 32U * 5 + 3);
        EXPECT_EQ(report.counters.shared, (Banks{64, 32 + 32 * ways, 64, ways})) << row;
    }
}

TEST_F(Known, WhatAPassLoadsIsCounted) {
    // Two loads of 16 bytes by each lane; the second turn is a pass of its own, as a store is between.
    EXPECT_EQ(run(launch_passes, {1, 32}).counters.pass_bytes, 2 * 32 * 16);
    // So is each turn of a loop without a store.
    const Report sum = run(launch_sum_of_halves, {1, 32});
    EXPECT_EQ(sum.counters.pass_bytes, 2 * 32 * 4);
    // Two requests for the halves of a sector: each touches all of them, a cache leaves half of that.
    EXPECT_EQ(sum.counters.loads, (Traffic{20, 20 * 8, 20 * 4, 10 * 8}));
    EXPECT_EQ(run(launch_strided, {1, 64, 0, 1}).counters.pass_bytes, 32 * 4);
}

} // namespace
} // namespace mp::blocks
