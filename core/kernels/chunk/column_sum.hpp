// SPDX-License-Identifier: Apache-2.0
// column_sum of one strip of columns, in the order of ColumnSumDesc.
#pragma once

#include "kernels/chunk/jobs.hpp"
#include "kernels/chunk/memory.hpp"
#include "kernels/chunk/tile.hpp"

namespace mp::kernels::MP_CHUNK_NAMESPACE {

// Up to kTile columns: sums of one block of rows in `block`, of all blocks so far in `total`.
inline void column_sum_tile(const ColumnSumDesc& op, int64_t first_column, int n) {
    float total[kTile] = {};
    float block[kTile];
    float row_values[kTile];
    const DType from = op.source.dtype;
    for (int64_t first = 0; first < op.rows; first += kColumnSumBlock) {
        const int64_t end = first + min_int(op.rows - first, kColumnSumBlock);
        for (int i = 0; i < n; ++i) {
            block[i] = 0.0F;
        }
        for (int64_t row = first; row < end; ++row) {
            widen_tile(from, element_address(op.source.data, from, row * op.columns + first_column),
                       row_values, n);
            for (int i = 0; i < n; ++i) {
                block[i] += row_values[i];
            }
        }
        for (int i = 0; i < n; ++i) {
            total[i] += block[i];
        }
    }
    const DType to = op.destination.dtype;
    void* out = element_address(op.destination.data, to, first_column);
    if (op.accumulate) {
        widen_tile(to, out, row_values, n);
        for (int i = 0; i < n; ++i) {
            total[i] += row_values[i];
        }
    }
    narrow_tile<Rounding::nearest>(to, total, out, n, nullptr);
}

inline void column_sum_strip(const ColumnSumJob& job) {
    for (int64_t done = 0; done < job.columns; done += kTile) {
        column_sum_tile(*job.op, job.first_column + done, min_int(job.columns - done, kTile));
    }
}

} // namespace mp::kernels::MP_CHUNK_NAMESPACE
