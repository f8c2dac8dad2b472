// SPDX-License-Identifier: Apache-2.0
// column_sum as a Kokkos kernel.
#pragma once

#include "kernels/array.hpp"
#include "kernels/exec.hpp"
#include "numerics/magnitude.hpp"

namespace mp::kernels {

// The sum of some rows of a column, one after another: of what is in them,
struct SumOfElements {
    static KOKKOS_FORCEINLINE_FUNCTION float of_rows(const ColumnSumDesc& op, int64_t row,
                                                     int64_t end, int64_t column) {
        float sum = 0.0F;
        visit_array(op.source, [&](const auto& source) {
            for (; row < end; ++row) {
                sum += source(row * op.columns + column);
            }
        });
        return sum;
    }
};
// or of products.
struct SumOfProducts {
    static KOKKOS_FORCEINLINE_FUNCTION float of_rows(const ColumnSumDesc& op, int64_t row,
                                                     int64_t end, int64_t column) {
        float sum = 0.0F;
        visit_wide(op.source, [&](const auto& source) {
            visit_wide(op.times, [&](const auto& times) {
                for (int64_t i = row; i < end; ++i) {
                    const int64_t at = i * op.columns + column;
                    sum += source(at) * times(at);
                }
            });
        });
        return sum;
    }
};

// A team sums kColumns columns: kBlocks blocks of rows at a time, each in order, which are then added in order.
template <class Exec, class Sum = SumOfElements> struct ColumnSumTeams {
    static constexpr int kColumns = 32;
    static constexpr int kBlocks = 8;
    static constexpr int kThreads = kColumns * kBlocks;
    static constexpr std::size_t kScratch = (kThreads + kColumns) * sizeof(float);

    ColumnSumDesc op;

    KOKKOS_INLINE_FUNCTION float sum_block(int64_t first_row, int64_t column) const {
        const int64_t end =
            first_row + kColumnSumBlock < op.rows ? first_row + kColumnSumBlock : op.rows;
        return Sum::of_rows(op, first_row, end, column);
    }

    KOKKOS_INLINE_FUNCTION void store(int64_t column, float total) const {
        if (op.divisor != nullptr) {
            total = numerics::quotient_or_zero(total, op.divisor[column]);
        }
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

template <class Teams, class Exec> void column_sum_by(const Exec& exec, const ColumnSumDesc& op) {
    for_each_team(exec, "mp::column_sum", divide_up(op.columns, Teams::kColumns), Teams::kThreads,
                  Teams::kScratch, Teams{op});
}
template <class Exec> void column_sum(const Exec& exec, const ColumnSumDesc& op) {
    if (op.times.dtype == DType::none) {
        column_sum_by<ColumnSumTeams<Exec>>(exec, op);
    } else {
        column_sum_by<ColumnSumTeams<Exec, SumOfProducts>>(exec, op);
    }
}

} // namespace mp::kernels
