// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "host/ops/candidates.hpp"

namespace mp::backends::host {

namespace {

void row_norm(ThreadPool& threads, const RowNormDesc& op) noexcept {
    const IsaTable& table = active_isa();
    const int64_t rows = std::max<int64_t>(1, kChunkElements / std::max<int64_t>(1, op.columns));
    threads.for_each(divide_up(op.rows, rows), [&](int64_t job) {
        const int64_t first = job * rows;
        table.row_norm(op, first, std::min(rows, op.rows - first));
    });
}

} // namespace

const Candidate kRowNorm = kByThreads<row_norm, RowNormDesc>;

} // namespace mp::backends::host
