// SPDX-License-Identifier: Apache-2.0
// column_sum as a Kokkos kernel.
#pragma once

#include "kernels/array.hpp"
#include "kernels/exec.hpp"

namespace mp::kernels {

// A team sums kColumns columns: kBlocks blocks of rows at a time, each in order, which are then added in order.
template <class Exec> struct ColumnSumTeams {
    static constexpr int kColumns = 32;
    static constexpr int kBlocks = 8;
    static constexpr int kThreads = kColumns * kBlocks;
    static constexpr std::size_t kScratch = (kThreads + kColumns) * sizeof(float);

    ColumnSumDesc op;

    KOKKOS_INLINE_FUNCTION float sum_block(int64_t first_row, int64_t column) const {
        const int64_t end =
            first_row + kColumnSumBlock < op.rows ? first_row + kColumnSumBlock : op.rows;
        float sum = 0.0F;
        visit_array(op.source, [&](const auto& source) {
            for (int64_t row = first_row; row < end; ++row) {
                sum += source(row * op.columns + column);
            }
        });
        return sum;
    }

    KOKKOS_INLINE_FUNCTION void store(int64_t column, float total) const {
        if (op.accumulate) {
            total += load_element(op.destination, column);
        }
        store_element(op.destination, column, total);
    }

    KOKKOS_INLINE_FUNCTION void operator()(const TeamOf<Exec>& team) const {
        auto* sums = static_cast<float*>(team.team_shmem().get_shmem(std::size_t{kScratch}));
        float* totals = sums + kThreads;
        const int64_t first_column = team.league_rank() * int64_t{kColumns};
        const int64_t left = op.columns - first_column;
        const int columns = static_cast<int>(left < kColumns ? left : kColumns);
        for_each_in_team(team, columns, [&](int column) { totals[column] = 0.0F; });
        for (int64_t first = 0; first < op.rows; first += kBlocks * kColumnSumBlock) {
            for_each_in_team(team, kThreads, [&](int item) {
                const int column = item % kColumns;
                const int64_t row = first + item / kColumns * kColumnSumBlock;
                if (column < columns && row < op.rows) {
                    sums[item] = sum_block(row, first_column + column);
                }
            });
            team.team_barrier();
            for_each_in_team(team, columns, [&](int column) {
                for (int b = 0; b < kBlocks && first + b * kColumnSumBlock < op.rows; ++b) {
                    totals[column] += sums[b * kColumns + column];
                }
            });
            team.team_barrier();
        }
        for_each_in_team(team, columns,
                         [&](int column) { store(first_column + column, totals[column]); });
    }
};

template <class Exec> void column_sum(const Exec& exec, const ColumnSumDesc& op) {
    using Teams = ColumnSumTeams<Exec>;
    for_each_team(exec, "mp::column_sum", divide_up(op.columns, Teams::kColumns), Teams::kThreads,
                  Teams::kScratch, Teams{op});
}

} // namespace mp::kernels
