// SPDX-License-Identifier: Apache-2.0
#include "host/ops/candidates.hpp"

namespace mp::backends::host {

namespace {

template <typename SumAt> double tree_sum(int64_t count, const SumAt& sum_at) {
    for (int64_t distance = 1; distance < count; distance *= 2) {
        for (int64_t i = 0; i + distance < count; i += 2 * distance) {
            sum_at(i) += sum_at(i + distance);
        }
    }
    return count > 0 ? sum_at(0) : 0.0;
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
    const auto plain = [&](int64_t i) -> double& { return op.chunk_sums[i]; };
    const auto placed = [&](int64_t i) -> double& { return op.chunk_sums[op.places[i]]; };
    if (op.stage == StatsStage::all) {
        op.state->sum_squares = tree_sum(op.table.chunk_count, plain);
    } else if (op.stage == StatsStage::tree) {
        op.state->sum_squares =
            op.places != nullptr ? tree_sum(op.sum_count, placed) : tree_sum(op.sum_count, plain);
    }
}

} // namespace

const Candidate kGradStats = kByThreads<grad_stats, GradStatsDesc>;

} // namespace mp::backends::host
