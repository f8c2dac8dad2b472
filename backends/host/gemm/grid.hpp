// SPDX-License-Identifier: Apache-2.0
// How a matrix product is cut into blocks, each computed by one thread. Bits do not depend on it: every
// element is the same chain of operations, whatever block it falls into (panels.hpp).
#pragma once

#include <cstdint>

namespace mp::backends::host {

struct GridRequest {
    int64_t m = 0;
    int64_t n = 0;
    int64_t k = 0;
    int64_t batch = 1;
    int64_t max_columns = 0;
    int32_t threads = 1;
};

struct Grid {
    int64_t rows = 0;    // of a block; the last one may have fewer
    int64_t columns = 0; // likewise
    int64_t row_blocks = 0;
    int64_t column_blocks = 0;

    [[nodiscard]] int64_t blocks() const noexcept { return row_blocks * column_blocks; }
};

// m, n and batch are at least 1.
Grid choose_grid(const GridRequest& request) noexcept;

} // namespace mp::backends::host
