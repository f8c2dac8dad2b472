// SPDX-License-Identifier: Apache-2.0
// SegmentPlan: the arrays of one multi-tensor launch, cut into chunks, in device memory.
#pragma once

#include <span>
#include <vector>

#include "device/stream.hpp"
#include "interface/ops.hpp"

namespace mp {

class SegmentPlan {
  public:
    SegmentPlan() = default;
    // Uploads on the stream; the plan belongs to that stream's device.
    SegmentPlan(Stream& stream, std::vector<AdamwSegment> segments);

    [[nodiscard]] SegmentTable table() const noexcept;
    [[nodiscard]] double* chunk_sums() const noexcept { return sums_.as<double>(); }
    // Scratch of a step, one a segment; null where no segment has scaled states.
    [[nodiscard]] AdamwScaling* scaling() const noexcept { return scaling_.as<AdamwScaling>(); }

    // Sum of squares of all gradients into state->sum_squares.
    void grad_stats(Stream& stream, numerics::OptimizerState* state) const;

  private:
    std::vector<AdamwSegment> host_segments_;
    int64_t chunk_count_ = 0;
    Buffer segments_;
    Buffer chunks_;
    Buffer sums_;
    Buffer scaling_;
};

} // namespace mp
