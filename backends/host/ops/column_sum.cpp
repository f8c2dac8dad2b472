// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "host/ops/candidates.hpp"

namespace mp::backends::host {

namespace {

// Room for the sums of some blocks of rows, and of all so far.
constexpr int64_t kScratch = 16384;

// Threads take whole rows, because half a row each would waste what the processor reads ahead. As many blocks of rows at
// once as there is room for.
void sum_by_rows(ThreadPool& threads, const ColumnSumDesc& op, float* scratch) noexcept {
    const IsaTable& table = active_isa();
    float* const total = scratch;
    float* const sums = scratch + op.columns;
    std::fill(total, total + op.columns, 0.0F);
    const int64_t most = (kScratch / op.columns - 1) / threads.threads() * threads.threads();
    for (int64_t row = 0; row < op.rows;) {
        const int64_t blocks = std::min(divide_up(op.rows - row, kColumnSumBlock), most);
        threads.for_each(blocks, [&](int64_t block) {
            table.column_sum_block(op, row + block * kColumnSumBlock, sums + block * op.columns);
        });
        row += blocks * kColumnSumBlock;
        table.column_sum_finish(op, sums, blocks, total, row >= op.rows);
    }
}

void sum_by_columns(ThreadPool& threads, const ColumnSumDesc& op) noexcept {
    const IsaTable& table = active_isa();
    // Whole cache lines a thread.
    const int64_t share = divide_up(divide_up(op.columns, threads.threads()), 32) * 32;
    const int64_t columns = std::min(share, kColumnStrip);
    threads.for_each(divide_up(op.columns, columns), [&](int64_t strip) {
        const int64_t first = strip * columns;
        table.column_sum({&op, first, std::min(op.columns - first, columns)});
    });
}

Status column_sum(const Resources& with, const ColumnSumDesc& op) noexcept {
    if (op.columns == 0) {
        return {};
    }
    ThreadPool& threads = with.threads;
    const int64_t count = threads.threads();
    const bool has_room = kScratch / op.columns > 4 * count;
    if (count > 1 && has_room && op.rows >= count * kColumnSumBlock) {
        ScratchPool::Lease scratch;
        const Status status = with.scratch.take(kScratch * sizeof(float), scratch);
        if (!status.ok()) {
            return status;
        }
        sum_by_rows(threads, op, static_cast<float*>(scratch.data()));
    } else {
        sum_by_columns(threads, op);
    }
    return {};
}

} // namespace

const Candidate kColumnSum = kByThreads<column_sum, ColumnSumDesc>;

} // namespace mp::backends::host
