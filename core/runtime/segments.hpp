// SPDX-License-Identifier: Apache-2.0
// SegmentPlan: the arrays of one multi-tensor launch, cut into chunks, in device memory.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "device/ops.hpp"
#include "runtime/stream.hpp"

namespace mp {

// Given the sums of squares of this rank's chunks, those of all ranks' chunks, in the order of one rank that holds
// everything.
using ChunkSumExchange = std::function<std::vector<double>(const std::vector<double>& own)>;

class SegmentPlan {
  public:
    SegmentPlan() = default;
    // Uploads on the stream; the plan belongs to that stream's device.
    SegmentPlan(Stream& stream, std::vector<UpdateSegment> segments);

    [[nodiscard]] SegmentTable table() const noexcept;
    [[nodiscard]] double* chunk_sums() const noexcept { return sums_.as<double>(); }
    // Scratch of a step, one a segment; null where no segment has scaled states.
    [[nodiscard]] UpdateScaling* scaling() const noexcept { return scaling_.as<UpdateScaling>(); }

    // Sum of squares of all gradients into state->sum_squares. With an exchange it waits.
    void grad_stats(Stream& stream, numerics::OptimizerState* state,
                    const ChunkSumExchange* exchange = nullptr) const;

  private:
    void sum_all_ranks(Stream& stream, GradStatsDesc op, const ChunkSumExchange& exchange) const;

    std::vector<UpdateSegment> host_segments_;
    int64_t chunk_count_ = 0;
    Buffer segments_;
    Buffer chunks_;
    Buffer sums_;
    Buffer scaling_;
};

} // namespace mp
