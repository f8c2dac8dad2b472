// SPDX-License-Identifier: Apache-2.0
// The kernel of amax on the machine for blocks: no fault, and the reference's bits.
#include "kernels.hpp"

namespace mp::blocks {
namespace {

using test::Content;
using test::HostArray;

void compare(DType dtype, int64_t count, int64_t offset, Content content) {
    SCOPED_TRACE(std::string(dtype_name(dtype)) + ", " + std::to_string(count) + " elements from " +
                 std::to_string(offset) + ", " + content_name(content));
    const HostArray values = test::make_array(dtype, count, content, 9);
    const float result = amax(machine(), kernel(OpKind::amax), values, offset);
    const float expected =
        amax(test::reference_device(), test::reference_candidate(OpKind::amax), values, offset);
    EXPECT_EQ(numerics::bits_from_float(result), numerics::bits_from_float(expected));
    (void)expect_no_fault();
}

class BlocksAmax : public BlocksTest {};

TEST_F(BlocksAmax, EveryTypeAndSizeAlignedAndNot) {
    for (const DType dtype : test::kFloatTypes) {
        for (const int64_t count : kBlockSizes) {
            for (const int64_t offset : {0, 1}) {
                compare(dtype, count, offset, Content::normal);
            }
        }
        compare(dtype, 4097, 0, Content::patterns);
    }
}

TEST_F(BlocksAmax, SeveralTurnsOfTheGrid) {
    compare(DType::bf16, kSeveralTurns, 0, Content::normal);
    compare(DType::fp32, kSeveralTurns, 0, Content::specials);
}

} // namespace
} // namespace mp::blocks
