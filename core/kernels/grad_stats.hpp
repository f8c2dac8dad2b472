// SPDX-License-Identifier: Apache-2.0
// grad_stats as Kokkos kernels: the sum of squares of each chunk, then a tree over the chunks.
#pragma once

#include "kernels/element.hpp"
#include "kernels/exec.hpp"
#include "kernels/update_scaling.hpp"

namespace mp::kernels {

struct GradStatsChunks {
    SegmentTable table;
    double* chunk_sums;
    TableOps ops;

    void operator()(int64_t i) const {
        const Chunk& chunk = table.chunks[i];
        const UpdateSegment& segment = table.segments[chunk.segment];
        const int64_t left = segment.count - chunk.start;
        chunk_sums[i] =
            ops.table->stats(segment.grad.data, segment.grad.dtype, segment.grad.tensor_scale(),
                             chunk.start, left < kChunkElements ? left : kChunkElements);
    }
};

// A team of one thread a lane and piece sums one chunk.
template <class Exec> struct GradStatsTeams {
    static constexpr int kPieces = static_cast<int>(kChunkElements / kStatsPiece);
    static constexpr int kLanes = static_cast<int>(kStatsLanes);
    static constexpr int kThreads = kPieces * kLanes;
    static constexpr std::size_t kScratch = kThreads * sizeof(double);

    SegmentTable table;
    double* chunk_sums;

    KOKKOS_INLINE_FUNCTION void operator()(const TeamOf<Exec>& team) const {
        auto* sums = static_cast<double*>(team.team_shmem().get_shmem(std::size_t{kScratch}));
        const Chunk chunk = table.chunks[team.league_rank()];
        const UpdateSegment& segment = table.segments[chunk.segment];
        const int rank = team.team_rank();
        const int64_t first = chunk.start + rank / kLanes * kStatsPiece;
        const int64_t piece_end =
            first + kStatsPiece < segment.count ? first + kStatsPiece : segment.count;
        double sum = 0.0;
        for (int64_t i = first + rank % kLanes; i < piece_end; i += kLanes) {
            const auto g =
                static_cast<double>(decoded(load_element(segment.grad.dtype, segment.grad.data, i),
                                            segment.grad.tensor_scale()));
            sum += g * g;
        }
        sums[rank] = sum;
        // Lanes first, then pieces: neighbours at distance 1, 2, 4, ... are both trees in one.
        for (int distance = 1; distance < kThreads; distance *= 2) {
            team.team_barrier();
            if (rank % (2 * distance) == 0) {
                sums[rank] += sums[rank + distance];
            }
        }
        if (rank == 0) {
            chunk_sums[team.league_rank()] = sums[0];
        }
    }
};

// Absent leaves are +0, and adding +0 to a sum of squares changes nothing, so they are left out.
template <class Exec> struct GradStatsTree {
    static constexpr int kThreads = 1024;

    double* sums;
    int64_t count;
    numerics::OptimizerState* state;

    KOKKOS_INLINE_FUNCTION void operator()(const TeamOf<Exec>& team) const {
        for (int64_t distance = 1; distance < count; distance *= 2) {
            const int64_t stride = 2 * distance;
            for (int64_t i = team.team_rank() * stride; i + distance < count;
                 i += kThreads * stride) {
                sums[i] += sums[i + distance];
            }
            team.team_barrier();
        }
        if (team.team_rank() == 0) {
            state->sum_squares = count > 0 ? sums[0] : 0.0;
        }
    }
};

inline double tree_sum(double* sums, int64_t count) {
    for (int64_t distance = 1; distance < count; distance *= 2) {
        for (int64_t i = 0; i + distance < count; i += 2 * distance) {
            sums[i] += sums[i + distance];
        }
    }
    return count > 0 ? sums[0] : 0.0;
}

template <class Exec, class Ops>
void sum_chunks(const Exec& exec, const Ops& ops, const GradStatsDesc& op) {
    const int64_t chunks = op.table.chunk_count;
    if constexpr (kIsHost<Exec>) {
        for_each(exec, "mp::grad_stats", chunks, GradStatsChunks{op.table, op.chunk_sums, ops});
    } else {
        using Teams = GradStatsTeams<Exec>;
        for_each_team(exec, "mp::grad_stats", chunks, Teams::kThreads, Teams::kScratch,
                      Teams{op.table, op.chunk_sums});
    }
}

template <class Exec> void sum_tree(const Exec& exec, const GradStatsDesc& op, int64_t count) {
    if constexpr (kIsHost<Exec>) {
        op.state->sum_squares = tree_sum(op.chunk_sums, count);
    } else {
        using Tree = GradStatsTree<Exec>;
        for_each_team(exec, "mp::grad_stats_tree", 1, Tree::kThreads, 0,
                      Tree{op.chunk_sums, count, op.state});
    }
}

template <class Exec, class Ops>
void grad_stats(const Exec& exec, const Ops& ops, const GradStatsDesc& op) {
    if (op.stage != StatsStage::tree) {
        sum_chunks(exec, ops, op);
    }
    if (op.stage != StatsStage::chunks) {
        sum_tree(exec, op, op.stage == StatsStage::all ? op.table.chunk_count : op.sum_count);
    }
}

} // namespace mp::kernels
