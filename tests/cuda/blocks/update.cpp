// SPDX-License-Identifier: Apache-2.0
// The kernels of the optimizer's step on the machine for blocks: no fault, and the reference's bits.
#include "backends/step_case.hpp"
#include "kernels.hpp"

namespace mp::blocks {
namespace {

using test::Content;
using test::Layout;
using test::ParamArrays;
using test::StepCase;

constexpr DType kFp32 = DType::fp32;
constexpr DType kFp16 = DType::fp16;
constexpr DType kBf16 = DType::bf16;
constexpr DType kNone = DType::none;

void compare(const StepCase& c) {
    SCOPED_TRACE(describe(c.params[0]));
    std::vector<ParamArrays> result;
    ASSERT_TRUE(adamw(machine(), kernel(OpKind::optimizer_update), c, result));
    (void)expect_no_fault();
    std::vector<ParamArrays> expected;
    ASSERT_TRUE(adamw(test::reference_device(), test::reference_candidate(OpKind::optimizer_update),
                      c, expected));
    for (std::size_t i = 0; i < result.size(); ++i) {
        SCOPED_TRACE("segment " + std::to_string(i));
        expect_same(expected[i], result[i]);
    }
}

// Those of cuda/update_rows.def, and two for the generic kernel.
std::vector<Layout> layouts() {
    std::vector<Layout> made;
#define X(name, param, grad, state0, state1, compensation, master, stochastic)                     \
    made.push_back({DType::param, DType::grad, DType::state0, DType::state1, DType::compensation,  \
                    DType::master});
#include "cuda/update_rows.def"
#undef X
    made.push_back({kFp16, kBf16, kFp16, kBf16, kNone, kFp32});
    made.push_back({kFp16, kFp32, kFp32, kFp16, kFp16, kNone});
    return made;
}

class BlocksUpdate : public BlocksTest {};

TEST_F(BlocksUpdate, EveryRowAlignedAndNot) {
    for (const Layout& layout : layouts()) {
        for (const int64_t offset : {0, 1}) {
            StepCase c = test::with_flags(0);
            c.params.push_back(make_param(layout, 1031, Content::normal, 3));
            c.params[0].offset = offset;
            compare(c);
        }
    }
}

TEST_F(BlocksUpdate, EverySettingOfEverySwitch) {
    for (uint32_t flags = 0; flags < 16; ++flags) {
        for (const Layout& layout : {Layout{kBf16, kBf16, kBf16, kBf16, kNone, kNone},
                                     Layout{kBf16, kBf16, kBf16, kBf16, kBf16, kNone}}) {
            StepCase c = test::with_flags(flags);
            c.params.push_back(make_param(layout, 517, Content::normal, 4));
            compare(c);
            c.skip = 1;
            compare(c);
        }
    }
}

// Segments of several layouts, some of several chunks, one of a single element.
TEST_F(BlocksUpdate, SegmentsAndChunks) {
    StepCase c = test::with_flags(8);
    int64_t count = 1;
    for (const Layout& layout : layouts()) {
        c.params.push_back(make_param(layout, count, Content::normal, 5));
        c.params.back().group = static_cast<int32_t>(count % 3);
        count = count * 2 + 1;
    }
    c.params.push_back(make_param(layouts()[0], 2 * kChunkElements + 5, Content::normal, 6));
    compare(c);
    StepCase one = test::with_flags(0);
    one.params.push_back(make_param(layouts()[4], 2 * kChunkElements + 5, Content::normal, 6));
    compare(one);
}

} // namespace
} // namespace mp::blocks
