// SPDX-License-Identifier: Apache-2.0
// column_sum as a Kokkos kernel.
#pragma once

#include "kernels/element.hpp"
#include "kernels/exec.hpp"

namespace mp::kernels {

struct ColumnSumStrips {
    ColumnSumDesc op;
    TableOps ops;
    int64_t columns; // of one strip

    void operator()(int64_t strip) const {
        const int64_t first = strip * columns;
        const int64_t left = op.columns - first;
        ops.table->column_sum({&op, first, left < columns ? left : columns});
    }
};

struct ColumnSumBlocks {
    ColumnSumDesc op;
    TableOps ops;
    int64_t first_row;
    float* sums;

    void operator()(int64_t block) const {
        ops.table->column_sum_block(op, first_row + block * kColumnSumBlock,
                                    sums + block * op.columns);
    }
};

// On the launching thread's stack: room for the sums of some blocks, and of all so far.
inline constexpr int64_t kColumnSumScratch = 16384;

// Threads take whole rows, because half a row each would waste what the processor reads ahead. As
// many blocks of rows at once as there is room for.
template <class Exec>
void column_sum_by_rows(const Exec& exec, TableOps ops, const ColumnSumDesc& op) {
    alignas(64) float scratch[kColumnSumScratch];
    float* total = scratch;
    float* sums = scratch + op.columns;
    for (int64_t i = 0; i < op.columns; ++i) {
        total[i] = 0.0F;
    }
    const int64_t threads = exec.concurrency();
    const int64_t most = (kColumnSumScratch / op.columns - 1) / threads * threads;
    for (int64_t row = 0; row < op.rows;) {
        const int64_t left = divide_up(op.rows - row, kColumnSumBlock);
        const int64_t blocks = left < most ? left : most;
        for_each(exec, "mp::column_sum", blocks, ColumnSumBlocks{op, ops, row, sums});
        row += blocks * kColumnSumBlock;
        ops.table->column_sum_finish(op, sums, blocks, total, row >= op.rows);
    }
}

template <class Exec>
void column_sum_by_columns(const Exec& exec, TableOps ops, const ColumnSumDesc& op) {
    // Whole cache lines a thread.
    int64_t columns = divide_up(op.columns, exec.concurrency());
    columns = divide_up(columns, 32) * 32;
    columns = columns < kColumnStrip ? columns : kColumnStrip;
    for_each(exec, "mp::column_sum", divide_up(op.columns, columns),
             ColumnSumStrips{op, ops, columns});
}

// A team sums 32 columns. Its threads sum kBlocks blocks of rows at a time, each in order; then one
// thread a column adds these blocks in order.
template <class Exec> struct ColumnSumTeams {
    static constexpr int kColumns = 32;
    static constexpr int kBlocks = 8;
    static constexpr int kThreads = kColumns * kBlocks;
    static constexpr std::size_t kScratch = kThreads * sizeof(float);

    ColumnSumDesc op;

    KOKKOS_INLINE_FUNCTION float sum_block(int64_t first_row, int64_t column) const {
        const int64_t end =
            first_row + kColumnSumBlock < op.rows ? first_row + kColumnSumBlock : op.rows;
        float sum = 0.0F;
        for (int64_t row = first_row; row < end; ++row) {
            sum += load_element(op.source.dtype, op.source.data, row * op.columns + column);
        }
        return sum;
    }

    KOKKOS_INLINE_FUNCTION void operator()(const TeamOf<Exec>& team) const {
        auto* blocks = static_cast<float*>(team.team_shmem().get_shmem(std::size_t{kScratch}));
        const int lane = team.team_rank() % kColumns;
        const int block = team.team_rank() / kColumns;
        const int64_t column = team.league_rank() * int64_t{kColumns} + lane;
        float total = 0.0F;
        for (int64_t first = 0; first < op.rows; first += kBlocks * kColumnSumBlock) {
            const int64_t row = first + block * kColumnSumBlock;
            if (column < op.columns && row < op.rows) {
                blocks[team.team_rank()] = sum_block(row, column);
            }
            team.team_barrier();
            for (int b = 0; block == 0 && b < kBlocks && first + b * kColumnSumBlock < op.rows;
                 ++b) {
                total += blocks[b * kColumns + lane];
            }
            team.team_barrier();
        }
        if (block == 0 && column < op.columns) {
            if (op.accumulate) {
                total += load_element(op.destination.dtype, op.destination.data, column);
            }
            store_element(op.destination.dtype, op.destination.data, column, total);
        }
    }
};

template <class Exec, class Ops>
void column_sum(const Exec& exec, const Ops& ops, const ColumnSumDesc& op) {
    if (op.columns == 0) {
        return;
    }
    if constexpr (kIsHost<Exec>) {
        const int64_t threads = exec.concurrency();
        const bool has_room = kColumnSumScratch / op.columns > 4 * threads;
        if (threads > 1 && has_room && op.rows >= threads * kColumnSumBlock) {
            column_sum_by_rows(exec, ops, op);
        } else {
            column_sum_by_columns(exec, ops, op);
        }
    } else {
        using Teams = ColumnSumTeams<Exec>;
        for_each_team(exec, "mp::column_sum", divide_up(op.columns, Teams::kColumns),
                      Teams::kThreads, Teams::kScratch, Teams{op});
    }
}

} // namespace mp::kernels
