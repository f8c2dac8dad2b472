// SPDX-License-Identifier: Apache-2.0
// How a matrix product is cut into blocks: all of it, once, with work for every thread.
#include <gtest/gtest.h>

#include "host/gemm/grid.hpp"

namespace mp::test {
namespace {

using namespace backends::host;

TEST(Grid, CoversTheProductOnce) {
    for (const int64_t m : {1, 12, 13, 144, 145, 1000, 4096, 100000}) {
        for (const int64_t n : {1, 32, 33, 512, 513, 3000, 50000}) {
            for (const int64_t k : {0, 1, 64, 4096}) {
                for (const int32_t threads : {1, 2, 64, 512}) {
                    for (const int64_t batch : {1, 7, 1000}) {
                        for (const int64_t max_columns : {512, 1024}) {
                            const Grid grid = choose_grid({m, n, k, batch, max_columns, threads});
                            ASSERT_GE(grid.rows, 1);
                            ASSERT_GE(grid.row_blocks * grid.rows, m);
                            ASSERT_LT((grid.row_blocks - 1) * grid.rows, m);
                            ASSERT_GE(grid.column_blocks * grid.columns, n);
                            ASSERT_LT((grid.column_blocks - 1) * grid.columns, n);
                            ASSERT_LE(grid.columns, max_columns);
                            ASSERT_LE(grid.rows, 144);
                        }
                    }
                }
            }
        }
    }
}

// A large product has work for every thread, and one thread gets nothing cut for others.
TEST(Grid, HasWorkForEveryThread) {
    for (const int32_t threads : {2, 8, 64}) {
        EXPECT_GE(choose_grid({2048, 1024, 256, 1, 1024, threads}).blocks(), 2 * threads);
        EXPECT_GE(choose_grid({384, 384, 2048, 1, 1024, threads}).blocks(), threads);
    }
    EXPECT_EQ(choose_grid({144, 1024, 256, 1, 1024, 1}).blocks(), 1);
    EXPECT_EQ(choose_grid({16, 16, 16, 1, 1024, 64}).blocks(), 1);
}

} // namespace
} // namespace mp::test
