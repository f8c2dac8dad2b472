// SPDX-License-Identifier: Apache-2.0
#include "host/gemm/grid.hpp"

#include <algorithm>

#include "dtype/divide.hpp"
#include "host/gemm/panels.hpp"

namespace mp::backends::host {

namespace {

// A block's packed rows and its results stay in a core's second-level cache.
constexpr int64_t kMaxRows = 12 * kGroupRows;
constexpr int64_t kMinRows = 2 * kGroupRows;
constexpr int64_t kMinColumns = 2 * kPanelColumns;
// Enough blocks for each thread that all finish together, also where one is held up.
constexpr int64_t kBlocksPerThread = 4;
// Multiplications below which a block is not worth a thread: some ten microseconds.
constexpr double kMinWork = 1 << 20;

// The smallest multiple of `unit` of which `parts` cover `size`.
int64_t even_share(int64_t size, int64_t parts, int64_t unit) {
    return divide_up(divide_up(size, parts), unit) * unit;
}

int64_t wanted_blocks(const GridRequest& r) {
    if (r.threads == 1) {
        return 1;
    }
    const double work = static_cast<double>(r.m) * static_cast<double>(r.n) *
                        static_cast<double>(std::max<int64_t>(r.k, 1));
    const double worthwhile = std::min(work / kMinWork, 1e9) + 1.0;
    return std::min(static_cast<int64_t>(worthwhile),
                    divide_up(r.threads * kBlocksPerThread, r.batch));
}

} // namespace

// Rows are cut before columns, as columns share the packed B; but not below half of what keeps a panel of
// B in use.
Grid choose_grid(const GridRequest& r) noexcept {
    const int64_t wanted = wanted_blocks(r);
    int64_t row_parts = divide_up(r.m, kMaxRows);
    int64_t column_parts = divide_up(r.n, r.max_columns);
    while (row_parts * column_parts < wanted) {
        const int64_t rows = divide_up(r.m, row_parts);
        const int64_t columns = divide_up(r.n, column_parts);
        if (rows > kMinRows && (rows > kMaxRows / 2 || columns <= 2 * kMinColumns)) {
            row_parts += divide_up(row_parts, 4);
        } else if (columns > kMinColumns) {
            column_parts *= 2;
        } else {
            break;
        }
    }
    Grid grid;
    grid.rows = std::min(r.m, even_share(r.m, row_parts, kGroupRows));
    grid.columns = std::min(r.n, even_share(r.n, column_parts, kPanelColumns));
    grid.row_blocks = divide_up(r.m, grid.rows);
    grid.column_blocks = divide_up(r.n, grid.columns);
    return grid;
}

} // namespace mp::backends::host
