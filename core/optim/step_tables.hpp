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
    void propose(comm::Agreement& agreement) override;
    void end(Stream& /*stream*/) noexcept override { unused_.clear(); }
    // While this step is there nothing here changes, and no checkpoint is taken.
    void set_open(const std::shared_ptr<const void>& step) noexcept { open_ = step; }
    void refuse_open() const;
    // A parameter's arrays, with its row of memory().
    [[nodiscard]] UpdateSegment segment(int32_t parameter) const;
    // Those that the next step passes over, beside those marked before; their gradients become zero. Not in a capture.
    void mark_unused(Stream& stream, std::span<const int32_t> parameters);
    // Parameters were frozen, or are trained again: they are not marked, and t of each begins at 0. Without memory of its own
    // after room_to_restart() for as many.
    void room_to_restart(std::size_t more) { restarted_.reserve(restarted_.size() + more); }
    void restart(std::span<const int32_t> parameters) noexcept;
    // All gradients, and nothing is marked.
    void zero_grad(Stream& stream);
    [[nodiscard]] const StepMemory& memory() const noexcept { return memory_; }
    // Of all parameters that are enabled and here, in their order.
    [[nodiscard]] const SegmentPlan& gradients() const noexcept { return arrays_; }
    [[nodiscard]] std::span<StepWork* const> work() const noexcept { return {&work_, 1}; }
    // Of random bits, beside the step.
    [[nodiscard]] uint64_t seed() const noexcept { return seed_; }
    // The parameters that the next step is of.
    [[nodiscard]] std::vector<int32_t> enabled() const;
    // Of everything that a step needs, but these tables.
    [[nodiscard]] MemoryReport held() const noexcept;
    // Of steps so far; zeros where states are the device's.
    [[nodiscard]] OffloadTraffic offload_traffic() const noexcept;

    [[nodiscard]] numerics::OptimizerState read_state(Stream& stream) const; // waits
    void set_step(Stream& stream, int64_t step); // t of all parameters too; waits
    // t of one group: the most steps that any of its parameters took part in. Those that took part in fewer have their own,
    // until it is set.
    [[nodiscard]] int64_t group_step(Stream& stream, int32_t group) const; // waits
    void set_group_step(Stream& stream, int32_t group, int64_t step);      // waits

    // The seed, the state, and t of each group and of each parameter.
    void save(Stream& stream, OptimizerCounts& counts) const override;
    void prepare_restore(Stream& stream, RestoredCounts& restored) const override;
    void restore(Stream& stream, RestoredCounts& restored) override;
    // What restore() writes.
    struct Restored {
        StepCounts values;
        Cohorts cohorts;
        StepMemory memory;
    };

  private:
    // Of everything there is, restarted_ included; `cohorts` has all parameters.
    [[nodiscard]] Cohorts::Counts counts_of(const Cohorts& cohorts,
                                            const std::vector<int64_t>& steps) const;
    void plan(Stream& stream);
    void zero_gradient(Stream& stream, int32_t parameter) const;
    void plan_arrays(Stream& stream, const Cohorts& cohorts);
    void log_memory() const noexcept;

    std::shared_ptr<Context> context_;
    ParamGroups& groups_;
    const Parameters& parameters_;
    uint64_t seed_;
    std::vector<int32_t> unused_;    // in the next step, sorted; none is frozen
    std::vector<int32_t> left_out_;  // of cohorts_ and arrays_, likewise
    std::vector<int32_t> restarted_; // since the tables were made
    Cohorts cohorts_;                // the rows of memory_
    StepMemory memory_;
    TextLine<300> shown_; // in an agreement
    SegmentPlan arrays_;  // where states are on the host, of the gradients alone
    SegmentWork on_device_{arrays_};
    std::unique_ptr<StreamedWork> streamed_; // or null
    StepWork* work_;
    std::weak_ptr<const void> open_; // the step that is taken in parts
};

} // namespace mp::optim
