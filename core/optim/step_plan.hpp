// SPDX-License-Identifier: Apache-2.0
// StepPlan: a step over the caller's arrays, prepared once. A run only enqueues: it allocates nothing and waits for nobody, so it
// can be captured. Counts the steps that were taken.
#pragma once

#include <span>
#include <vector>

#include "optim/step_memory.hpp"

namespace mp::optim {

// A parameter whose largest magnitude is wanted: it becomes the maximum of itself and what is there.
struct ParamAmax {
    TensorRef param;
    float* amax = nullptr;
};

class StepPlan {
  public:
    // Segments and amaxes were checked. `step`: steps taken so far.
    StepPlan(Stream& stream, std::vector<UpdateSegment> segments, std::vector<ParamAmax> amaxes,
             const numerics::GroupHyper& hyper, const StepOptions& options, int64_t step);

    // From the next run on.
    void set(Stream& stream, const numerics::GroupHyper& hyper, const StepOptions& options);
    void run(Stream& stream, scaler::LossScaler* scaler) const;
    [[nodiscard]] numerics::OptimizerState read_state(Stream& stream) const { // waits
        return memory_.read(stream).state;
    }
    // Throws where what a run with these writes shares memory with anything else of it.
    void check_apart(const numerics::GroupHyper& hyper, const StepOptions& options,
                     const scaler::LossScaler* scaler) const;
    [[nodiscard]] std::span<const UpdateSegment> segments() const noexcept {
        const SegmentTable table = plan_.table();
        return {table.host_segments, static_cast<std::size_t>(table.segment_count)};
    }
    [[nodiscard]] const StepOptions& options() const noexcept { return options_; }
    [[nodiscard]] const numerics::GroupHyper& hyper() const noexcept { return hyper_.front(); }

  private:
    std::vector<numerics::GroupHyper> hyper_; // of the one group; uploads read it later
    StepOptions options_;
    SegmentPlan plan_;
    std::vector<ParamAmax> amaxes_;
    StepMemory memory_;
};

} // namespace mp::optim
