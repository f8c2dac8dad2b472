// SPDX-License-Identifier: Apache-2.0
// The part of Optimizer that counts steps, and that a checkpoint keeps beside the tensors.
#include <algorithm>
#include <cmath>

#include "optim/optimizer.hpp"
#include "optim/saved_groups.hpp"

namespace mp::optim {
namespace {

constexpr int64_t kMostSteps = int64_t{1} << 53; // also of a checkpoint's own step

void check_step(int64_t step) {
    if (step < 0) {
        fail(Code::invalid_argument, "optimizer: step is %lld; it must be >= 0",
             static_cast<long long>(step));
    }
}

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

} // namespace

numerics::OptimizerState Optimizer::read_state(Stream& stream) const {
    return memory_.read(stream).state;
}

void Optimizer::set_step(Stream& stream, int64_t step) {
    check_step(step);
    refresh(stream); // so that every group has a count
    StepCounts counts = memory_.read(stream);
    counts.state.step = step;
    counts.group_steps.assign(cohorts_.size(), step);
    memory_.write(stream, counts);
}

int64_t Optimizer::group_step(Stream& stream, int32_t group) const {
    groups_.check(group, false);
    if (!cohorts_.knows(group)) {
        return 0; // added since the last step
    }
    const auto first = static_cast<std::size_t>(cohorts_.first(group));
    return memory_.read(stream).group_steps[first];
}

void Optimizer::set_group_step(Stream& stream, int32_t group, int64_t step) {
    groups_.check(group, false);
    check_step(step);
    refresh(stream);
    StepCounts counts = memory_.read(stream);
    for (std::size_t c = 0; c < cohorts_.size(); ++c) {
        counts.group_steps[c] = cohorts_.group(c) == group ? step : counts.group_steps[c];
    }
    memory_.write(stream, counts);
}

float Optimizer::grad_mu(int32_t parameter) const {
    (void)parameters_[parameter];
    const bool shares = sharding() != nullptr && sharding()->grad_scales().shares(parameter);
    return shares ? sharding()->grad_scales().mu(parameter) : 0.0F;
}

OptimizerCounts Optimizer::counts(Stream& stream) const {
    const StepCounts read = memory_.read(stream);
    OptimizerCounts counts;
    counts.step = read.state.step;
    counts.skipped_steps = read.state.skipped_steps;
    counts.outlier_steps = read.state.outlier_steps;
    counts.guard = guard_.read(stream);
    counts.seed = options_.seed;
    counts.groups = groups_.hyper();
    Cohorts now = cohorts_;
    std::vector<int64_t> steps = read.group_steps;
    now.extend(groups_, parameters_, steps);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        const int32_t first = now.first(static_cast<int32_t>(g));
        counts.group_steps.push_back(steps[static_cast<std::size_t>(first)]);
    }
    for (int32_t i = 0; i < parameters_.count(); ++i) {
        counts.param_groups.push_back(parameters_[i].group);
        counts.param_steps.push_back(steps[static_cast<std::size_t>(now.of(i))]);
    }
    for (int32_t i = 0; i < parameters_.count(); ++i) {
        const auto place = static_cast<std::size_t>(i);
        const float mu = grad_mu(i);
        if (mu != 0.0F) {
            counts.grad_mus.push_back(sharding()->grad_scales().has_moved(i) ? mu : 0.0F);
        } else {
            counts.grad_mus.push_back(place < kept_mus_.size() ? kept_mus_[place] : 0.0F);
        }
    }
    return counts;
}

// All but the groups: numbers of a file, which may come from anybody.
void Optimizer::check_counts(const OptimizerCounts& counts) {
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

RestoredCounts Optimizer::prepare_restore(Stream& stream, OptimizerCounts counts) {
    check_counts(counts);
    if (!counts.param_groups.empty()) {
        const std::vector<int32_t> to =
            match_groups(parameters_, counts.param_groups, counts.groups.size(), groups_.size());
        reorder(counts, to);
    }
    groups_.check_saved(counts.groups);
    if (counts.param_steps.empty()) { // all begin with their group
        for (const Parameter& parameter : parameters_) {
            const auto group = static_cast<std::size_t>(parameter.group);
            counts.param_steps.push_back(counts.group_steps[group]);
        }
    }
    RestoredCounts restored = {std::move(counts), memory_.read(stream), {}, {}};
    restored.values.state.step = restored.counts.step;
    restored.values.state.skipped_steps = restored.counts.skipped_steps;
    restored.values.state.outlier_steps = restored.counts.outlier_steps;
    restored.cohorts = Cohorts(parameters_, restored.counts.group_steps,
                               restored.counts.param_steps, restored.values.group_steps);
    restored.tables = StepMemory(stream, restored.cohorts.hyper(groups_), restored.values);
    return restored;
}

void Optimizer::restore(Stream& stream, RestoredCounts&& restored) {
    options_.seed = restored.counts.seed;
    groups_.restore(restored.counts.groups);
    memory_.set_tables(std::move(restored.tables));
    memory_.write(stream, restored.values);
    cohorts_ = std::move(restored.cohorts);
    guard_.write(stream, std::move(restored.counts.guard));
    for (int32_t i = 0; i < static_cast<int32_t>(restored.counts.grad_mus.size()); ++i) {
        const float mu = restored.counts.grad_mus[static_cast<std::size_t>(i)];
        if (grad_mu(i) != 0.0F) {
            sharding()->grad_scales().set_mu(i, mu);
            restored.counts.grad_mus[static_cast<std::size_t>(i)] = 0.0F;
        }
    }
    kept_mus_ = std::move(restored.counts.grad_mus);
    parameters_.publish(stream);
}

} // namespace mp::optim
