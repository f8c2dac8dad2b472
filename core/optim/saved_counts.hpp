// SPDX-License-Identifier: Apache-2.0
// What a checkpoint keeps of an optimizer beside its tensors.
#pragma once

#include <vector>

#include "optim/optimizer.hpp"

namespace mp::optim {

struct OptimizerCounts {
    int64_t step = 0;
    int64_t skipped_steps = 0;
    int64_t outlier_steps = 0;
    uint64_t seed = 0;
    std::vector<numerics::GroupHyper> groups; // device_lr is the caller's, and not kept
    std::vector<int64_t> group_steps;
    // By parameter. Empty: an earlier format did not keep it; groups are then known by their numbers.
    std::vector<int32_t> param_groups;
    std::vector<int64_t> param_steps;
    std::vector<float> grad_mus; // by parameter: mu, 0 where it has none or no step has moved it
    GuardValues guard;
};
OptimizerCounts saved_counts(Stream& stream, Optimizer& optimizer); // waits

inline constexpr int64_t kMostSteps = int64_t{1} << 53; // also of a checkpoint's own step
constexpr bool is_step_count(int64_t steps) { return steps >= 0 && steps <= kMostSteps; }

// What restore_counts() writes, made beforehand so that it needs no memory.
struct RestoredCounts {
    OptimizerCounts counts; // groups in the order of those here
    StepTables::Restored tables;
};
// Throws for groups that do not fit those here, and for numbers out of their domain. Waits.
RestoredCounts prepare_restore(Stream& stream, Optimizer& optimizer, OptimizerCounts counts);
// After the states were written. Waits, and fails only where another rank is lost while weights are published.
void restore_counts(Stream& stream, Optimizer& optimizer, RestoredCounts&& restored);

} // namespace mp::optim
