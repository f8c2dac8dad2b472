// SPDX-License-Identifier: Apache-2.0
// grad_stats as Kokkos kernels: the sum of squares of each chunk, then a tree over the chunks.
#pragma once

#include "device/update_scaling.hpp"
#include "kernels/array.hpp"
#include "kernels/exec.hpp"

namespace mp::kernels {

// A team sums one chunk, in kSums sums: one for each lane of each block.
template <class Exec> struct GradStatsTeams {
    static constexpr int kLanes = static_cast<int>(kStatsLanes);
    static constexpr int kSums = static_cast<int>(kChunkElements / kStatsBlock) * kLanes;
    static constexpr int kThreads = kSums;
    static constexpr std::size_t kScratch = kSums * sizeof(double);

    SegmentTable table;
    double* chunk_sums;

    static KOKKOS_INLINE_FUNCTION double sum_lane(const UpdateSegment& segment, int64_t block,
                                                  int lane) {
        const int64_t end =
            block + kStatsBlock < segment.count ? block + kStatsBlock : segment.count;
        double sum = 0.0;
        const StepArray& grad = segment.grad;
        visit_array(grad.dtype, grad.data, segment.count, [&](const auto& array) {
            for (int64_t i = block + lane; i < end; i += kLanes) {
                const auto g = static_cast<double>(decoded(array(i), grad.tensor_scale()));
                sum += g * g;
            }
        });
        return sum;
    }

    KOKKOS_INLINE_FUNCTION void operator()(const TeamOf<Exec>& team) const {
        auto* sums = static_cast<double*>(team.team_shmem().get_shmem(std::size_t{kScratch}));
        const Chunk chunk = table.chunks[team.league_rank()];
        const UpdateSegment& segment = table.segments[chunk.segment];
        for_each_in_team(team, kSums, [&](int item) {
            sums[item] =
                sum_lane(segment, chunk.start + item / kLanes * kStatsBlock, item % kLanes);
        });
        // Lanes first, then blocks: neighbours at distance 1, 2, 4, ... are both trees in one.
        for (int distance = 1; distance < kSums; distance *= 2) {
            team.team_barrier();
            for_each_in_team(team, kSums, [&](int item) {
                if (item % (2 * distance) == 0) {
                    sums[item] += sums[item + distance];
                }
            });
        }
        if (team.team_rank() == 0) {
            chunk_sums[team.league_rank()] = sums[0];
        }
    }
};

// One team. Absent leaves are +0, and adding +0 to a sum of squares changes nothing, so they are left out.
template <class Exec> struct GradStatsTree {
    static constexpr int kThreads = 1024;

    double* sums;
    const int32_t* places; // null: each where its number is
    int64_t count;
    numerics::OptimizerState* state;

    KOKKOS_INLINE_FUNCTION double& sum(int64_t i) const {
        return sums[places != nullptr ? places[i] : i];
    }

    KOKKOS_INLINE_FUNCTION void operator()(const TeamOf<Exec>& team) const {
        for (int64_t distance = 1; distance < count; distance *= 2) {
            const int64_t stride = 2 * distance;
            for (int64_t i = team.team_rank() * stride; i + distance < count;
                 i += team.team_size() * stride) {
                sum(i) += sum(i + distance);
            }
            team.team_barrier();
        }
        if (team.team_rank() == 0) {
            state->sum_squares = count > 0 ? sum(0) : 0.0;
        }
    }
};

template <class Exec> void grad_stats(const Exec& exec, const GradStatsDesc& op) {
    using Teams = GradStatsTeams<Exec>;
    using Tree = GradStatsTree<Exec>;
    if (op.stage != StatsStage::tree) {
        for_each_team(exec, "mp::grad_stats", op.table.chunk_count, Teams::kThreads,
                      Teams::kScratch, Teams{op.table, op.chunk_sums});
    }
    if (op.stage != StatsStage::chunks) {
        const bool is_tree = op.stage == StatsStage::tree;
        const int64_t count = is_tree ? op.sum_count : op.table.chunk_count;
        for_each_team(exec, "mp::grad_stats_tree", 1, Tree::kThreads, 0,
                      Tree{op.chunk_sums, is_tree ? op.places : nullptr, count, op.state});
    }
}

} // namespace mp::kernels
