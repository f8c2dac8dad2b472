// SPDX-License-Identifier: Apache-2.0
// A plan of the host's own matrix product beside what else runs: its memory, other threads, and the caller's OpenMP.
#include <gtest/gtest.h>

#include <thread>

#include <omp.h>

#include "blocked_gemm.hpp"

namespace mp::test {
namespace {

using namespace backends::host;

class BlockedGemmPlan : public BlockedGemmTest {};

TEST_F(BlockedGemmPlan, AllocatesOnlyInTheFirstRun) {
    GemmOptions o;
    o.shape = {300, 300, 300};
    o.in = o.out = DType::bf16;
    o.gelu = true;
    GemmCase x(o);
    std::unique_ptr<HostGemm> plan;
    check(kWidenFp32.make(x.desc, 2, plan));
    check(plan->run(workshop_.on(2), x.buffers()));
    const int64_t first = workshop_.memory().allocations();
    for (int32_t i = 0; i < 5; ++i) {
        check(plan->run(workshop_.on(2), x.buffers()));
    }
    EXPECT_EQ(workshop_.memory().allocations(), first);
}

TEST_F(BlockedGemmPlan, ChangesNothingWithoutMemory) {
    GemmOptions o;
    o.shape = {30, 30, 30};
    GemmCase x(o);
    const auto before = x.result();
    std::unique_ptr<HostGemm> plan;
    check(kBlockedFp32.make(x.desc, 2, plan));
    workshop_.memory().exhaust();
    EXPECT_EQ(plan->run(workshop_.on(2), x.buffers()).code(), Code::out_of_memory);
    EXPECT_EQ(x.result(), before);
}

TEST_F(BlockedGemmPlan, LeavesTheCallersOpenmpAlone) {
    const int threads_before = omp_get_max_threads();
    GemmOptions o;
    o.shape = {300, 300, 100};
    GemmCase x(o);
    omp_set_num_threads(5);
    ASSERT_TRUE(run(kBlockedFp32, x, 2));
    EXPECT_EQ(omp_get_max_threads(), 5);
    omp_set_num_threads(threads_before);
    const auto expected = x.result();
    // Inside a parallel region of the caller's, where nested teams have one thread.
    int32_t differing = 0;
#pragma omp parallel num_threads(2) reduction(+ : differing)
    {
        GemmCase y(o);
        Workshop workshop;
        std::unique_ptr<HostGemm> plan;
        differing +=
            kBlockedFp32.make(y.desc, 3, plan).ok() && plan->run(workshop.on(3), y.buffers()).ok()
                ? 0
                : 1;
        differing += y.result() == expected ? 0 : 1;
    }
    EXPECT_EQ(differing, 0);
}

// A plan has no state: threads may share it.
TEST_F(BlockedGemmPlan, RunsOnePlanOnManyThreads) {
    GemmOptions o;
    o.shape = {200, 300, 100};
    o.in = DType::bf16;
    GemmCase x(o);
    ASSERT_TRUE(run(kWidenFp32, x, 2));
    const auto expected = x.result();
    std::unique_ptr<HostGemm> plan;
    check(kWidenFp32.make(x.desc, 2, plan));
    std::vector<std::unique_ptr<GemmCase>> cases;
    for (int32_t i = 0; i < 4; ++i) {
        cases.push_back(std::make_unique<GemmCase>(o));
    }
    std::vector<std::thread> threads;
    for (const auto& mine : cases) {
        threads.emplace_back([&] {
            for (int32_t i = 0; i < 10; ++i) {
                check(plan->run(workshop_.on(2), mine->buffers()));
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    for (const auto& mine : cases) {
        EXPECT_EQ(mine->result(), expected);
    }
}

} // namespace
} // namespace mp::test
