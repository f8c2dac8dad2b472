// SPDX-License-Identifier: Apache-2.0
// The kernels that bring fp8 codes into cuBLASLt's order, on the machine for blocks: no fault, and each code in its place.
#include "kernels.hpp"

namespace mp::blocks {
namespace {

// Every code is in its place.
void compare(const CodesCase& c) {
    SCOPED_TRACE(std::to_string(c.rows) + " x " + std::to_string(c.columns) +
                 (c.transposed ? ", transposed" : "") + ", gap " + std::to_string(c.gap) +
                 ", offset " + std::to_string(c.offset));
    const test::HostArray source = codes_source(c);
    const test::HostArray result = arrange(c, source);
    (void)expect_no_fault();
    for (int64_t row = 0; row < c.padded_rows(); ++row) {
        for (int64_t column = 0; column < c.padded_columns(); ++column) {
            const bool is_there = row < c.rows && column < c.columns;
            const int64_t from =
                c.transposed ? column * c.stride() + row : row * c.stride() + column;
            ASSERT_EQ(result.code(row * c.padded_columns() + column),
                      is_there ? source.code(from) : 0U)
                << row << ", " << column;
        }
    }
}

class BlocksCodes : public BlocksTest {};

TEST_F(BlocksCodes, RowsAndColumnsOfEverySize) {
    for (const bool transposed : {false, true}) {
        for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1},
                                            {3, 15},
                                            {4, 16},
                                            {16, 16},
                                            {17, 33},
                                            {64, 160},
                                            {65, 129}}) {
            compare({rows, columns, transposed});
            compare({rows, columns, transposed, 3, 1, 2});
            compare({rows, columns, transposed, 4, 4, 16 - rows % 16});
        }
    }
}

TEST_F(BlocksCodes, SeveralBlocksAndTurnsOfTheGrid) {
    compare({520, 640, true});
    compare({520, 640, false, 8});
}

TEST_F(BlocksCodes, TheLargerAmaxStays) {
    for (const auto& [before, found] : {std::pair<float, float>{1.0F, -2.0F}, {3.0F, 2.0F}}) {
        test::DeviceValue<float> amax(machine(), before);
        const test::DeviceValue<float> other(machine(), found);
        use_array("amax", amax.data(), sizeof(float), Use::read);
        use_array("found", other.data(), sizeof(float), Use::read);
        check(backends::cuda::raise_amax(static_cast<backends::cuda::CudaQueue&>(machine().queue()),
                                         amax.data(), other.data()));
        (void)expect_no_fault();
        EXPECT_EQ(amax.download(), std::max(before, std::abs(found)));
    }
}

} // namespace
} // namespace mp::blocks
