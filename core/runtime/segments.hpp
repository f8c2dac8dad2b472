// SPDX-License-Identifier: Apache-2.0
// SegmentPlan: the arrays of one multi-tensor launch, cut into chunks, in device memory.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "device/ops.hpp"
#include "runtime/stream.hpp"

namespace mp {

// Sums of squares of chunks, of the device.
struct PlacedSums {
    std::unique_ptr<Scratch> memory; // of them; null: they lie elsewhere
    double* sums = nullptr;
    const int32_t* places = nullptr; // as that of GradStatsDesc; stays until the next exchange
    int64_t count = 0;
    int64_t held = 0; // what lies there, where there are places

    // In their order. Waits.
    [[nodiscard]] std::vector<double> read(Stream& stream) const;
};

// How the sums of squares of this rank's chunks become those of all ranks' chunks.
class ChunkSumExchange {
  public:
    ChunkSumExchange() = default;
    ChunkSumExchange(const ChunkSumExchange&) = delete;
    ChunkSumExchange& operator=(const ChunkSumExchange&) = delete;

    // In the order of one rank that holds everything, before and after.
    virtual PlacedSums sums(Stream& stream, const PlacedSums& own) = 0;

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

    // Sum of squares of all gradients into state->sum_squares. `host`: null, or the stream of a plan of the host's, whose
    // gradients are there, while the state is on the device of `stream`.
    void grad_stats(Stream& stream, numerics::OptimizerState* state,
                    ChunkSumExchange* exchange = nullptr, Stream* host = nullptr) const;

  private:
    [[nodiscard]] PlacedSums sums_here() const noexcept;
    [[nodiscard]] PlacedSums from_host(Stream& stream, Stream& host) const;

    std::vector<UpdateSegment> host_segments_;
    int64_t chunk_count_ = 0;
    Buffer segments_;
    Buffer chunks_;
    Buffer sums_;
    Buffer scaling_;
};

} // namespace mp
