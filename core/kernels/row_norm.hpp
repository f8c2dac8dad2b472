// SPDX-License-Identifier: Apache-2.0
// row_norm as a Kokkos kernel.
#pragma once

#include "kernels/exec.hpp"
#include "numerics/magnitude.hpp"

namespace mp::kernels {

// A team takes kRows rows, each by kLanes sums.
template <class Exec> struct RowNormTeams {
    static constexpr int kLanes = numerics::kNormLanes;
    static constexpr int kRows = 8;
    static constexpr int kThreads = kRows * kLanes;
    static constexpr std::size_t kScratch = kThreads * sizeof(float);

    RowNormDesc op;

    [[nodiscard]] KOKKOS_INLINE_FUNCTION float sum_lane(int64_t row, int lane) const {
        const float* x = op.source + row * op.columns;
        float sum = 0.0F;
        for (int64_t column = lane; column < op.columns; column += kLanes) {
            sum = numerics::plus_square(sum, x[column]);
        }
        return sum;
    }

    KOKKOS_INLINE_FUNCTION void operator()(const TeamOf<Exec>& team) const {
        auto* sums = static_cast<float*>(team.team_shmem().get_shmem(std::size_t{kScratch}));
        const int64_t first_row = team.league_rank() * int64_t{kRows};
        const int64_t left = op.rows - first_row;
        const int rows = static_cast<int>(left < kRows ? left : kRows);
        for_each_in_team(team, rows * kLanes, [&](int item) {
            sums[item] = sum_lane(first_row + item / kLanes, item % kLanes);
        });
        for (int distance = 1; distance < kLanes; distance *= 2) {
            team.team_barrier();
            for_each_in_team(team, rows * kLanes, [&](int item) {
                if (item % (2 * distance) == 0) {
                    sums[item] += sums[item + distance];
                }
            });
        }
        team.team_barrier();
        for_each_in_team(team, rows,
                         [&](int row) { op.result[first_row + row] = sqrtf(sums[row * kLanes]); });
    }
};

template <class Exec> void row_norm(const Exec& exec, const RowNormDesc& op) {
    using Teams = RowNormTeams<Exec>;
    for_each_team(exec, "mp::row_norm", divide_up(op.rows, Teams::kRows), Teams::kThreads,
                  Teams::kScratch, Teams{op});
}

} // namespace mp::kernels
