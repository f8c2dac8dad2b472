// SPDX-License-Identifier: Apache-2.0
// StepTables: what the device reads of each step, and keeps between steps: hyperparameters and counts, a row for each cohort
// of parameters, and the arrays that are stepped.
#pragma once

#include <memory>
#include <vector>

#include "optim/cohorts.hpp"
#include "optim/streamed_work.hpp"

namespace mp::optim {

class StepTables final : public StepParticipant {
  public:
    // Groups and parameters outlive this. `offload`: states and step are on the host.
    StepTables(const std::shared_ptr<Context>& context, ParamGroups& groups,
               const Parameters& parameters, bool offload, uint64_t seed);

    // What changed of groups and parameters since the last one. All that can fail for want of memory is done here.
    void begin(Stream& stream) override;
    [[nodiscard]] const StepMemory& memory() const noexcept { return memory_; }
    // Of all parameters that are enabled and here, in their order.
    [[nodiscard]] const SegmentPlan& gradients() const noexcept { return arrays_; }
    [[nodiscard]] std::span<StepWork* const> work() const noexcept { return {&work_, 1}; }
    // Of random bits, beside the step.
    [[nodiscard]] uint64_t seed() const noexcept { return seed_; }
    // The parameters of groups that are on.
    [[nodiscard]] std::vector<int32_t> enabled() const;

    [[nodiscard]] numerics::OptimizerState read_state(Stream& stream) const; // waits
    void set_step(Stream& stream, int64_t step); // t of all parameters too; waits
    // t of one group: the steps that the parameters it began with took part in. Those that came later have their own, until
    // it is set.
    [[nodiscard]] int64_t group_step(Stream& stream, int32_t group) const; // waits
    void set_group_step(Stream& stream, int32_t group, int64_t step);      // waits

    // For a checkpoint: t of each group and of each parameter, beside the state.
    struct Counts {
        uint64_t seed = 0;
        numerics::OptimizerState state;
        std::vector<int64_t> groups;
        std::vector<int64_t> parameters;
    };
    [[nodiscard]] Counts read(Stream& stream) const; // waits
    // What restore() writes, made beforehand so that it needs no memory.
    struct Restored {
        uint64_t seed = 0;
        StepCounts values;
        Cohorts cohorts;
        StepMemory memory;
    };
    [[nodiscard]] Restored prepare_restore(Stream& stream, const Counts& counts) const; // waits
    void restore(Stream& stream, Restored&& restored);                                  // waits

  private:
    void plan_arrays(Stream& stream, const Cohorts& cohorts);
    void log_memory() const noexcept;

    std::shared_ptr<Context> context_;
    ParamGroups& groups_;
    const Parameters& parameters_;
    uint64_t seed_;
    Cohorts cohorts_; // the rows of memory_
    StepMemory memory_;
    SegmentPlan arrays_; // where states are on the host, of the gradients alone
    SegmentWork on_device_{arrays_};
    std::unique_ptr<StreamedWork> streamed_; // or null
    StepWork* work_;
};

} // namespace mp::optim
