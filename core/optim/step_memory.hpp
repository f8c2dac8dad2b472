// SPDX-License-Identifier: Apache-2.0
// What a step keeps between its calls, its options, and what of arrays and numbers is refused. Used by the optimizer object and
// by the step on the caller's pointers.
#pragma once

#include <memory>

#include "numerics/optimizer_state.hpp"
#include "runtime/segments.hpp"
#include "scaler/loss_scaler.hpp"

namespace mp::optim {

struct StepOptions {
    uint64_t seed = 0;
    double max_grad_norm = 0.0;
    double grad_scale = 1.0;
    const float* device_grad_scale = nullptr; // as well as grad_scale
    const float* device_grad_mul = nullptr;   // a factor, likewise
    int64_t* device_step = nullptr; // steps taken so far, instead of the memory's own; of one group
    bool check_finite = false;
    bool zero_grad = false;
    bool stochastic_param = false;
    bool stochastic_states[numerics::kMaxStates] = {};
    numerics::GuardState* guard = nullptr; // null: no step stands out
    numerics::GuardRule guard_rule;
};

// Whether a step reads the gradients first.
bool needs_stats(const StepOptions& options, const scaler::LossScaler* scaler);

// Which of a rule's states has no sign; -1: none.
int second_moment(numerics::RuleId rule);
// Throws invalid_argument for hyperparameters outside their domain.
void check_hyper(const numerics::GroupHyper& hyper);
// Throws for dtypes that cannot be combined, and for pointers that are missing or not aligned.
void check_segment(const UpdateSegment& segment, const char* name,
                   numerics::RuleId rule = numerics::RuleId::adamw);
// The parts of it that concern the gradient alone, and all else.
void check_gradient(const UpdateSegment& segment, const char* name);
void check_kept(const UpdateSegment& segment, const char* name, numerics::RuleId rule);

// What a step leaves behind: the optimizer's own state, and t of each group.
struct StepCounts {
    numerics::OptimizerState state;
    std::vector<int64_t> group_steps;
};

// What the decision of a step was, on the host.
struct PreparedStep {
    numerics::OptimizerState state;
    std::vector<numerics::GroupScalars> scalars; // by group
};

// The device-resident part of an optimizer: state, hyperparameters and scalars of each group, which here is what has a count
// of its own.
class StepMemory {
  public:
    StepMemory() = default;
    StepMemory(Stream& stream, const std::vector<numerics::GroupHyper>& hyper,
               const StepCounts& counts);

    void set_hyper(Stream& stream, const std::vector<numerics::GroupHyper>& hyper);
    // The groups and counts of `made` from now on; its state is dropped, and this one's keeps its place. Needs no memory.
    void set_tables(StepMemory&& made) noexcept;
    [[nodiscard]] StepCounts read(Stream& stream) const;  // waits
    void write(Stream& stream, const StepCounts& counts); // waits

    // The decision of a step, whose gradients were read where anything asks for it.
    void prepare(Stream& stream, scaler::LossScaler* scaler, const StepOptions& options) const;
    // Of so many scalars as there are groups: apply phases take no memory. Waits.
    void read_prepared(Stream& stream, PreparedStep& prepared) const;
    [[nodiscard]] std::size_t group_count() const noexcept {
        return static_cast<std::size_t>(group_count_);
    }
    // In device memory, at one place as long as this lives.
    [[nodiscard]] numerics::OptimizerState* state() const noexcept {
        return state_.as<numerics::OptimizerState>();
    }
    // Device memory: not 0 where the last step changed nothing.
    [[nodiscard]] const uint32_t* skip() const noexcept {
        return &state_.as<numerics::OptimizerState>()->skip;
    }

    // Of each group, in device memory that set_tables() replaces.
    [[nodiscard]] numerics::GroupScalars* scalars() const noexcept;

  private:
    // The parts of groups_, each from a cache line of its own on: hyperparameters, scalars, counts.
    [[nodiscard]] std::size_t scalars_at() const noexcept;
    [[nodiscard]] std::size_t steps_at() const noexcept;
    [[nodiscard]] std::size_t steps_bytes() const noexcept;
    [[nodiscard]] int64_t* group_steps() const noexcept;

    int32_t group_count_ = 0;
    Buffer state_;
    Buffer groups_;
};

// The fused update of a plan, with the scalars and counts of `memory`.
OptimizerUpdateDesc make_update(const SegmentPlan& plan, const StepMemory& memory,
                                const StepOptions& options) noexcept;

} // namespace mp::optim
