// SPDX-License-Identifier: Apache-2.0
#include "optim/saved_counts.hpp"

#include <algorithm>
#include <cmath>

#include "optim/saved_groups.hpp"

namespace mp::optim {
namespace {

constexpr int64_t kMostSteps = int64_t{1} << 53; // also of a checkpoint's own step

bool is_count(int64_t steps) { return steps >= 0 && steps <= kMostSteps; }

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

// All but the groups: numbers of a file, which may come from anybody.
void check_counts(const OptimizerCounts& counts) {
    bool is_good = is_count(counts.step) && is_count(counts.skipped_steps) &&
                   counts.outlier_steps >= 0 && counts.outlier_steps <= counts.skipped_steps &&
                   counts.group_steps.size() == counts.groups.size();
    for (const auto* steps : {&counts.group_steps, &counts.param_steps}) {
        is_good = is_good && std::all_of(steps->begin(), steps->end(), is_count);
    }
    if (!is_good) {
        fail(Code::corrupt_data,
             "optimizer: a saved number of steps is negative, beyond 2^53 or missing");
    }
    if (!std::all_of(counts.guard.count.begin(), counts.guard.count.end(), is_count)) {
        fail(Code::corrupt_data, "optimizer: a saved count of the guard cannot be");
    }
    for (const std::vector<double>& seen : counts.guard.last) {
        if (!std::all_of(seen.begin(), seen.end(), [](double x) { return std::isfinite(x); })) {
            fail(Code::corrupt_data,
                 "optimizer: a saved value of the guard is not finite; it keeps no such values");
        }
    }
    for (const float mu : counts.grad_mus) {
        if (mu != 0.0F && !numerics::is_mu(mu)) {
            fail(Code::corrupt_data, "optimizer: a saved mu is %g; it lies in [2^-16, 2]",
                 static_cast<double>(mu));
        }
    }
}

} // namespace

OptimizerCounts saved_counts(Stream& stream, const Optimizer& optimizer) {
    const StepTables::Counts read = optimizer.tables().read(stream);
    OptimizerCounts counts;
    counts.step = read.state.step;
    counts.skipped_steps = read.state.skipped_steps;
    counts.outlier_steps = read.state.outlier_steps;
    counts.guard = optimizer.guard().read(stream);
    counts.seed = read.seed;
    counts.groups = optimizer.groups().hyper();
    counts.group_steps = read.steps.groups;
    for (const Parameter& parameter : optimizer.parameters()) {
        counts.param_groups.push_back(parameter.group);
    }
    counts.param_steps = read.steps.parameters;
    counts.grad_mus = optimizer.grad_scales().saved();
    return counts;
}

RestoredCounts prepare_restore(Stream& stream, const Optimizer& optimizer, OptimizerCounts counts) {
    const ParamGroups& groups = optimizer.groups();
    check_counts(counts);
    if (!counts.param_groups.empty()) {
        const std::vector<int32_t> to = match_groups(optimizer.parameters(), counts.param_groups,
                                                     counts.groups.size(), groups.size());
        reorder(counts, to);
    }
    groups.check_saved(counts.groups);
    if (counts.param_steps.empty()) { // all begin with their group
        for (const Parameter& parameter : optimizer.parameters()) {
            const auto group = static_cast<std::size_t>(parameter.group);
            counts.param_steps.push_back(counts.group_steps[group]);
        }
    }
    StepTables::Counts steps = {counts.seed, {}, {counts.group_steps, counts.param_steps}};
    steps.state.step = counts.step;
    steps.state.skipped_steps = counts.skipped_steps;
    steps.state.outlier_steps = counts.outlier_steps;
    StepTables::Restored tables = optimizer.tables().prepare_restore(stream, steps);
    return {std::move(counts), std::move(tables)};
}

void restore_counts(Stream& stream, Optimizer& optimizer, RestoredCounts&& restored) {
    optimizer.groups().restore(restored.counts.groups);
    optimizer.tables().restore(stream, std::move(restored.tables));
    optimizer.guard().write(stream, std::move(restored.counts.guard));
    optimizer.grad_scales().restore(std::move(restored.counts.grad_mus));
    optimizer.parameters().publish(stream);
}

} // namespace mp::optim
