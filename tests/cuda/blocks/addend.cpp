// SPDX-License-Identifier: Apache-2.0
// The kernel that writes a bias before its product, on the machine for blocks: no fault, and the sums as they are written out.
#include "kernels.hpp"

namespace mp::blocks {
namespace {

void compare(const AddendCase& c) {
    SCOPED_TRACE(std::to_string(c.rows) + " x " + std::to_string(c.columns) + ", beta " +
                 std::to_string(c.beta) + ", gap " + std::to_string(c.gap) +
                 (c.in_place ? ", in place" : ""));
    const test::HostArray old = addend_c(c);
    const test::HostArray bias = addend_bias(c);
    const test::HostArray result = addend(c);
    (void)expect_no_fault();
    for (int64_t row = 0; row < c.rows; ++row) {
        for (int64_t column = 0; column < c.padded_columns(); ++column) {
            const bool has_c = c.beta != 0.0F && column < c.columns;
            const float scaled = has_c ? c.beta * old.get(row * c.c_stride() + column) : 0.0F;
            ASSERT_EQ(result.get(row * c.d_stride() + column), scaled + bias.get(column))
                << row << ", " << column;
        }
    }
}

class BlocksAddend : public BlocksTest {};

TEST_F(BlocksAddend, RowsAndColumnsOfEverySize) {
    for (const float beta : {0.0F, 1.0F, -2.5F}) {
        for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1},
                                            {3, 15},
                                            {4, 16},
                                            {17, 33},
                                            {64, 160},
                                            {65, 129}}) {
            compare({rows, columns, beta});
            compare({rows, columns, beta, 3});
        }
    }
}

TEST_F(BlocksAddend, InPlaceAndInSeveralTurnsOfTheGrid) {
    compare({5, 32, 2.0F, 0, true});
    compare({520, 640, 0.5F, 16, true});
    compare({520, 630, 0.5F, 1});
}

} // namespace
} // namespace mp::blocks
