// SPDX-License-Identifier: Apache-2.0
#include "optim/saved_counts.hpp"

#include <algorithm>

#include "optim/saved_groups.hpp"

namespace mp::optim {
namespace {

// The saved groups in the order of those here.
void reorder(OptimizerCounts& counts, const std::vector<int32_t>& to) {
    std::vector<numerics::GroupHyper> groups = counts.groups;
    std::vector<int64_t> steps = counts.group_steps;
    for (std::size_t saved = 0; saved < to.size(); ++saved) {
        const auto here = static_cast<std::size_t>(to[saved]);
        groups[here] = counts.groups[saved];
        steps[here] = counts.group_steps[saved];
    }
    counts.groups = std::move(groups);
    counts.group_steps = std::move(steps);
}

void check_steps(const OptimizerCounts& counts) {
    bool is_good = is_step_count(counts.step) && is_step_count(counts.skipped_steps) &&
                   counts.outlier_steps >= 0 && counts.outlier_steps <= counts.skipped_steps &&
                   counts.group_steps.size() == counts.groups.size();
    for (const auto* steps : {&counts.group_steps, &counts.param_steps}) {
        is_good = is_good && std::all_of(steps->begin(), steps->end(), is_step_count);
    }
    if (!is_good) {
        fail(Code::corrupt_data,
             "optimizer: a saved number of steps is negative, beyond 2^53 or missing");
    }
}

} // namespace

OptimizerCounts saved_counts(Stream& stream, Optimizer& optimizer) {
    OptimizerCounts counts;
    for (const Parameter& parameter : optimizer.parameters()) {
        counts.param_groups.push_back(parameter.group);
    }
    for (const StepParticipant* part : optimizer.saved()) {
        part->save(stream, counts);
    }
    return counts;
}

RestoredCounts prepare_restore(Stream& stream, Optimizer& optimizer, OptimizerCounts counts) {
    check_steps(counts);
    if (!counts.param_groups.empty()) {
        const std::vector<int32_t> to =
            match_groups(optimizer.parameters(), counts.param_groups, counts.groups.size(),
                         optimizer.groups().size());
        reorder(counts, to);
    }
    if (counts.param_steps.empty()) { // all begin with their group
        for (const Parameter& parameter : optimizer.parameters()) {
            const auto group = static_cast<std::size_t>(parameter.group);
            counts.param_steps.push_back(
                group < counts.group_steps.size() ? counts.group_steps[group] : 0);
        }
    }
    RestoredCounts restored = {std::move(counts), {}};
    for (const StepParticipant* part : optimizer.saved()) {
        part->prepare_restore(stream, restored);
    }
    return restored;
}

void restore_counts(Stream& stream, Optimizer& optimizer, RestoredCounts&& restored) {
    for (StepParticipant* part : optimizer.saved()) {
        part->restore(stream, restored);
    }
    optimizer.parameters().publish(stream);
}

} // namespace mp::optim
