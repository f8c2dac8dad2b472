// SPDX-License-Identifier: Apache-2.0
// The kernel of cast on the machine for blocks: no fault, and the reference's bits.
#include "kernels.hpp"

namespace mp::blocks {
namespace {

using test::Content;
using test::HostArray;

void compare(const CastCase& c) {
    SCOPED_TRACE(std::string(dtype_name(c.from)) + " to " + dtype_name(c.to) + ", " +
                 std::to_string(c.count) + " elements from " + std::to_string(c.offset) +
                 (c.saturate ? ", saturating" : "") + (c.stochastic ? ", stochastic" : ""));
    const HostArray values = test::make_array(c.from, c.count, Content::patterns, 5);
    const HostArray result = cast(machine(), kernel(OpKind::cast), c, values);
    const HostArray expected =
        cast(test::reference_device(), test::reference_candidate(OpKind::cast), c, values);
    EXPECT_TRUE(same_bits(expected, result, test::NanRule::same_bits));
    (void)expect_no_fault();
}

class BlocksCast : public BlocksTest {};

TEST_F(BlocksCast, EveryPairOfTypesAlignedAndNot) {
    for (const DType from : test::kFloatTypes) {
        for (const DType to : test::kFloatTypes) {
            for (const int64_t offset : {0, 1, 4}) {
                compare({from, to, 2061, offset, true, false});
                compare({from, to, 300, offset, false, true});
            }
        }
    }
}

TEST_F(BlocksCast, EverySize) {
    for (const int64_t count : kBlockSizes) {
        for (const DType to : {DType::bf16, DType::fp8_e4m3}) {
            compare({DType::fp32, to, count});
            compare({DType::fp32, to, count, 0, true, true});
            compare({to, DType::fp32, count, 3});
        }
    }
}

TEST_F(BlocksCast, SeveralTurnsOfTheGrid) {
    compare({DType::fp32, DType::bf16, kSeveralTurns});
    compare({DType::bf16, DType::fp8_e5m2, kSeveralTurns, 0, true, true});
}

} // namespace
} // namespace mp::blocks
