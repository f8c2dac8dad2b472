// SPDX-License-Identifier: Apache-2.0
// SegmentPlan: the arrays of one multi-tensor launch, cut into chunks, in device memory.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/ops.hpp"
#include "runtime/stream.hpp"

namespace mp {

// How the sums of squares of this rank's chunks become those of all ranks' chunks.
class ChunkSumExchange {
  public:
    ChunkSumExchange() = default;
    ChunkSumExchange(const ChunkSumExchange&) = delete;
    ChunkSumExchange& operator=(const ChunkSumExchange&) = delete;

    // As they came from the ranks, and where each is in the order of one rank that holds everything.
    struct Placed {
        std::unique_ptr<Scratch> sums;
        const int32_t* places = nullptr; // on the device; stays until the next exchange
        int64_t count = 0;
    };

    // In the order of one rank that holds everything.
    virtual std::vector<double> sums(const std::vector<double>& own) = 0;
    // Without the host, of sums on the stream's device; nothing where only the host can do it.
    virtual std::optional<Placed> sums_on_device(Stream& stream, const double* own) = 0;

  protected:
    ~ChunkSumExchange() = default;
};

class SegmentPlan {
  public:
    SegmentPlan() = default;
    // Uploads on the stream; the plan belongs to that stream's device.
    SegmentPlan(Stream& stream, std::vector<UpdateSegment> segments);

    [[nodiscard]] SegmentTable table() const noexcept;
    [[nodiscard]] double* chunk_sums() const noexcept { return sums_.as<double>(); }
    // Scratch of a step, one a segment; null where no segment has scaled states.
    [[nodiscard]] UpdateScaling* scaling() const noexcept { return scaling_.as<UpdateScaling>(); }

    // Sum of squares of all gradients into state->sum_squares. With an exchange by the host it waits.
    void grad_stats(Stream& stream, numerics::OptimizerState* state,
                    ChunkSumExchange* exchange = nullptr) const;

  private:
    void sum_all_ranks(Stream& stream, GradStatsDesc op, ChunkSumExchange& exchange) const;

    std::vector<UpdateSegment> host_segments_;
    int64_t chunk_count_ = 0;
    Buffer segments_;
    Buffer chunks_;
    Buffer sums_;
    Buffer scaling_;
};

} // namespace mp
