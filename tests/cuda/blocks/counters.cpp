// SPDX-License-Identifier: Apache-2.0
// How the hand-written kernels use memory, by the machine for blocks. None may get worse than what is written here, which is
// also in docs/gpu.md.
#include <cstdio>
#include <functional>

#include "backends/step_case.hpp"
#include "kernels.hpp"

namespace mp::blocks {
namespace {

using test::Content;

// Sectors for 100 that the bytes would fill: that the requests of warps touch, and that a cache which keeps those of a pass
// leaves. The worst conflict of banks; atomics of a block; bytes that a warp loads in a pass at least, without what
// all of its lanes load alike.
struct Expected {
    int64_t load_sectors;
    int64_t load_distinct;
    int64_t store_sectors;
    int64_t store_distinct;
    int64_t conflict;
    int64_t atomics;
    int64_t pass_bytes;
};

struct Row {
    const char* name;
    std::function<void()> run;
    Expected expected;
};

constexpr int64_t kCount = 32768;

std::function<void()> of_cast(DType from, DType to, int64_t offset = 0) {
    return [=] {
        (void)cast(machine(), kernel(OpKind::cast), {from, to, kCount, offset, true, false},
                   test::make_array(from, kCount, Content::normal, 1));
    };
}

std::function<void()> of_amax(DType dtype, int64_t offset = 0) {
    return [=] {
        (void)amax(machine(), kernel(OpKind::amax),
                   test::make_array(dtype, kCount, Content::normal, 1), offset);
    };
}

std::function<void()> of_codes(const CodesCase& c) {
    return [=] { (void)arrange(c, codes_source(c)); };
}

std::function<void()> of_addend(const AddendCase& c) {
    return [=] { (void)addend(c); };
}

std::function<void()> of_update(const test::Layout& layout, bool stochastic = false) {
    return [=] {
        test::StepCase c = test::with_flags(stochastic ? 5 : 0);
        c.params.push_back(make_param(layout, kCount, Content::normal, 1));
        std::vector<test::ParamArrays> result;
        ASSERT_TRUE(adamw(machine(), kernel(OpKind::optimizer_update), c, result));
    };
}

std::vector<Row> rows() {
    constexpr DType kFp32 = DType::fp32;
    constexpr DType kBf16 = DType::bf16;
    constexpr DType kFp8 = DType::fp8_e4m3;
    constexpr DType kNone = DType::none;
    return {
        {"cast fp32 to bf16", of_cast(kFp32, kBf16), {200, 100, 100, 100, 0, 0, 1024}},
        {"cast bf16 to fp32", of_cast(kBf16, kFp32), {100, 100, 200, 100, 0, 0, 512}},
        {"cast fp32 to fp8", of_cast(kFp32, kFp8), {200, 100, 100, 100, 0, 0, 1024}},
        {"cast bf16 to fp8", of_cast(kBf16, kFp8), {100, 100, 100, 100, 0, 0, 512}},
        {"cast fp8 to bf16", of_cast(kFp8, kBf16), {100, 100, 100, 100, 0, 0, 256}},
        {"cast bf16 to fp8, unaligned", of_cast(kBf16, kFp8, 1), {806, 106, 813, 113, 0, 0, 512}},
        {"amax fp32", of_amax(kFp32), {200, 100, 0, 0, 1, 1, 1024}},
        {"amax bf16", of_amax(kBf16), {100, 100, 0, 0, 1, 1, 512}},
        {"amax fp8", of_amax(kFp8), {100, 100, 0, 0, 1, 1, 256}},
        {"amax bf16, unaligned", of_amax(kBf16, 1), {806, 106, 0, 0, 1, 1, 512}},
        {"codes copied", of_codes({250, 500, false}), {1613, 103, 100, 100, 0, 0, 500}},
        {"codes turned", of_codes({256, 512, true}), {100, 100, 200, 200, 0, 0, 2048}},
        {"codes turned, unaligned", of_codes({250, 500, true, 3}), {525, 525, 198, 198, 0, 0, 64}},
        {"bias written", of_addend({256, 512}), {100, 100, 100, 100, 0, 0, 512}},
        {"bias and C", of_addend({256, 512, 1.0F}), {250, 100, 100, 100, 0, 0, 1024}},
        {"update fp32", of_update({}), {200, 100, 200, 100, 0, 0, 4096}},
        {"update bf16", of_update({kBf16, kBf16, kBf16, kBf16}), {100, 100, 100, 100, 0, 0, 2048}},
        {"update bf16, stochastic",
         of_update({kBf16, kBf16, kBf16, kBf16}, true),
         {100, 100, 100, 100, 0, 0, 2048}},
        {"update bf16, Kahan",
         of_update({kBf16, kBf16, kBf16, kBf16, kBf16}),
         {100, 100, 100, 100, 0, 0, 2560}},
        {"update bf16, fp32 master",
         of_update({kBf16, kBf16, kFp32, kFp32, kNone, kFp32}),
         {185, 100, 186, 100, 0, 0, 3584}},
        {"update, generic",
         of_update({DType::fp16, kBf16, DType::fp16, kBf16, kNone, kFp32}),
         {140, 100, 140, 100, 0, 0, 2560}},
    };
}

// Rounded. 0: there is no such traffic.
int64_t percent(int64_t sectors, const Traffic& traffic) {
    return traffic.ideal == 0 ? 0 : (100 * sectors + traffic.ideal / 2) / traffic.ideal;
}

class BlocksCounters : public BlocksTest {};

TEST_F(BlocksCounters, NoKernelGetsWorse) {
    for (const Row& row : rows()) {
        SCOPED_TRACE(row.name);
        row.run();
        const std::vector<Report> reports = take_reports();
        ASSERT_EQ(reports.size(), 1U);
        EXPECT_EQ(reports[0].text(), "");
        const Counters& seen = reports[0].counters;
        const Expected now = {percent(seen.loads.sectors, seen.loads),
                              percent(seen.loads.distinct, seen.loads),
                              percent(seen.stores.sectors, seen.stores),
                              percent(seen.stores.distinct, seen.stores),
                              seen.shared.worst,
                              seen.atomics / reports[0].blocks,
                              seen.pass_bytes};
        std::printf("%-28s %5d %5d %5d %5d %3d %3d %6d\n", row.name,
                    static_cast<int>(now.load_sectors), static_cast<int>(now.load_distinct),
                    static_cast<int>(now.store_sectors), static_cast<int>(now.store_distinct),
                    static_cast<int>(now.conflict), static_cast<int>(now.atomics),
                    static_cast<int>(now.pass_bytes));
        EXPECT_LE(now.load_sectors, row.expected.load_sectors);
        EXPECT_LE(now.load_distinct, row.expected.load_distinct);
        EXPECT_LE(now.store_sectors, row.expected.store_sectors);
        EXPECT_LE(now.store_distinct, row.expected.store_distinct);
        EXPECT_LE(now.conflict, row.expected.conflict);
        EXPECT_LE(now.atomics, row.expected.atomics);
        EXPECT_GE(now.pass_bytes, row.expected.pass_bytes);
    }
}

} // namespace
} // namespace mp::blocks
