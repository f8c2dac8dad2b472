// SPDX-License-Identifier: Apache-2.0
// grad_stats: the sum of the squares of all gradients in double, in the order of GradStatsDesc.
#include <array>

#include "device/supports.hpp"
#include "device/update_scaling.hpp"
#include "numerics/codec.hpp"
#include "reference/candidates.hpp"

namespace mp::backends::reference {

namespace {

int64_t next_power_of_two(int64_t n) {
    int64_t power = 1;
    while (power < n) {
        power *= 2;
    }
    return power;
}

// Adds neighbours until one value is left; `leaves` is a power of two. Overwrites the array.
double tree_sum(double* values, int64_t leaves) {
    for (; leaves > 1; leaves /= 2) {
        for (int64_t i = 0; i < leaves / 2; ++i) {
            values[i] = values[2 * i] + values[2 * i + 1];
        }
    }
    return values[0];
}

double piece_sum(const UpdateSegment& segment, int64_t start, int64_t end) {
    std::array<double, kStatsLanes> lanes{};
    for (int64_t i = start; i < end; ++i) {
        // The square of an fp32 number is exact in double.
        const double g = static_cast<double>(
            decoded(numerics::load_as_float(segment.grad.dtype, segment.grad.data, i),
                    segment.grad.tensor_scale()));
        lanes[static_cast<std::size_t>((i - start) % kStatsLanes)] += g * g;
    }
    return tree_sum(lanes.data(), kStatsLanes);
}

double chunk_sum(const UpdateSegment& segment, int64_t start) {
    std::array<double, kChunkElements / kStatsBlock> blocks{};
    const int64_t end =
        start + kChunkElements < segment.count ? start + kChunkElements : segment.count;
    for (int64_t at = start; at < end; at += kStatsBlock) {
        blocks[static_cast<std::size_t>((at - start) / kStatsBlock)] =
            piece_sum(segment, at, at + kStatsBlock < end ? at + kStatsBlock : end);
    }
    return tree_sum(blocks.data(), kChunkElements / kStatsBlock);
}

void sum_chunks(const SegmentTable& table, double* sums) {
    for (int64_t i = 0; i < table.chunk_count; ++i) {
        const Chunk& chunk = table.chunks[i];
        sums[i] = chunk_sum(table.segments[chunk.segment], chunk.start);
    }
}

// Of the sums [first, first + leaves), of which those from `count` on are absent.
double sum_of_chunks(const GradStatsDesc& op, int64_t count, int64_t first, int64_t leaves) {
    if (first >= count) {
        return 0.0;
    }
    if (leaves == 1) {
        const bool are_placed = op.stage == StatsStage::tree && op.places != nullptr;
        return op.chunk_sums[are_placed ? op.places[first] : first];
    }
    const int64_t half = leaves / 2;
    return sum_of_chunks(op, count, first, half) + sum_of_chunks(op, count, first + half, half);
}

Status run(Device& /*device*/, Queue& /*queue*/, const OpDesc& op) noexcept {
    const auto& stats = static_cast<const GradStatsDesc&>(op);
    if (stats.stage != StatsStage::tree) {
        sum_chunks(stats.table, stats.chunk_sums);
    }
    if (stats.stage != StatsStage::chunks) {
        const int64_t count =
            stats.stage == StatsStage::all ? stats.table.chunk_count : stats.sum_count;
        stats.state->sum_squares = sum_of_chunks(stats, count, 0, next_power_of_two(count));
    }
    return {};
}

} // namespace

const Candidate kGradStats = {kName, takes_all<GradStatsDesc>, run, nullptr, nullptr};

} // namespace mp::backends::reference
