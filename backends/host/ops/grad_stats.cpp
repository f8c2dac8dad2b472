// SPDX-License-Identifier: Apache-2.0
#include "host/ops/candidates.hpp"

namespace mp::backends::host {

namespace {

double tree_sum(double* sums, int64_t count) {
    for (int64_t distance = 1; distance < count; distance *= 2) {
        for (int64_t i = 0; i + distance < count; i += 2 * distance) {
            sums[i] += sums[i + distance];
        }
    }
    return count > 0 ? sums[0] : 0.0;
}

void grad_stats(ThreadPool& threads, const GradStatsDesc& op) noexcept {
    if (op.stage != StatsStage::tree) {
        const IsaTable& table = active_isa();
        threads.for_each(op.table.chunk_count, [&](int64_t i) {
            const Chunk& chunk = op.table.chunks[i];
            const UpdateSegment& segment = op.table.segments[chunk.segment];
            const StepArray& grad = segment.grad;
            op.chunk_sums[i] = table.stats(grad.data, grad.dtype, grad.tensor_scale(), chunk.start,
                                           chunk_length(segment.count, chunk.start));
        });
    }
    if (op.stage != StatsStage::chunks) {
        op.state->sum_squares = tree_sum(
            op.chunk_sums, op.stage == StatsStage::all ? op.table.chunk_count : op.sum_count);
    }
}

} // namespace

const Candidate kGradStats = kByThreads<grad_stats, GradStatsDesc>;

} // namespace mp::backends::host
