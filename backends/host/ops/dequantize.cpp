// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "host/ops/candidates.hpp"

namespace mp::backends::host {

namespace {

// As one long row, where nothing ends with a row.
DequantizeDesc as_one_row(const DequantizeDesc& op) {
    DequantizeDesc line = op;
    ArrayRef& from = line.source;
    const int64_t width = from.format.grid.block_columns;
    const bool is_one = !from.format.grid.exists() || from.format.grid.is_one();
    const bool has_whole_rows = op.window.columns == from.columns;
    if (has_whole_rows &&
        (is_one || (from.format.grid.block_rows == 1 && width > 0 && from.columns % width == 0))) {
        line.window = {0, op.window.first_row * from.columns, 1, op.window.count()};
        from.columns *= from.rows;
        from.rows = 1;
    }
    return line;
}

void dequantize(ThreadPool& threads, const DequantizeDesc& op) noexcept {
    if (op.destination.count == 0) {
        return;
    }
    const IsaTable& table = active_isa();
    const DequantizeDesc line = as_one_row(op);
    const Window& part = line.window;
    const int64_t columns = std::min(part.columns, kChunkElements);
    const int64_t rows = columns < part.columns ? 1 : divide_up(kChunkElements, columns);
    const int64_t jobs_in_row = divide_up(part.columns, columns);
    DequantizeJob whole{};
    whole.op = &line;
    whole.stream = op.destination.count * dtype_size(op.destination.dtype) >= kStreamBytes;
    threads.for_each(divide_up(part.rows, rows) * jobs_in_row, [&](int64_t i) {
        DequantizeJob job = whole;
        job.first_row = i / jobs_in_row * rows;
        job.first_column = i % jobs_in_row * columns;
        job.rows = std::min(part.rows - job.first_row, rows);
        job.columns = std::min(part.columns - job.first_column, columns);
        table.dequantize(job);
    });
}

} // namespace

const Candidate kDequantize = kByThreads<dequantize, DequantizeDesc>;

} // namespace mp::backends::host
