// SPDX-License-Identifier: Apache-2.0
#include "optim/cohorts.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace mp::optim {

int32_t Cohorts::begin(int32_t group, int64_t step, std::vector<int64_t>& steps, bool is_unused) {
    const auto cohort = static_cast<int32_t>(list_.size());
    const auto g = static_cast<std::size_t>(group);
    list_.push_back({group, false, is_unused});
    steps.push_back(step);
    newest_.resize(std::max(newest_.size(), g + 1));
    newest_[g] = cohort;
    return cohort;
}

bool Cohorts::has_members(int32_t group) const {
    return std::any_of(list_.begin(), list_.end(), [group](const Cohort& cohort) {
        return cohort.group == group && cohort.has_members;
    });
}

void Cohorts::join(int32_t cohort, const Parameter& parameter) {
    bool& has_members = list_[static_cast<std::size_t>(cohort)].has_members;
    has_members = has_members || !parameter.layout.is_frozen;
    of_parameter_.push_back(cohort);
}

Cohorts::Cohorts(const Parameters& parameters, const Counts& counts,
                 std::span<const int32_t> unused, std::vector<int64_t>& steps) {
    std::map<std::tuple<int32_t, int64_t, bool>, int32_t> known;
    steps.clear();
    for (std::size_t g = 0; g < counts.groups.size(); ++g) {
        const auto group = static_cast<int32_t>(g);
        known[{group, counts.groups[g], false}] = begin(group, counts.groups[g], steps);
    }
    for (int32_t i = 0; i < parameters.count(); ++i) {
        const bool is_unused = std::binary_search(unused.begin(), unused.end(), i);
        const int32_t group = parameters[i].group;
        const int64_t step = counts.parameters[static_cast<std::size_t>(i)];
        const auto [found, is_new] = known.try_emplace({group, step, is_unused}, -1);
        if (is_new) {
            found->second = begin(group, step, steps, is_unused);
        }
        join(found->second, parameters[i]);
    }
}

Cohorts::Counts Cohorts::counts(const std::vector<int64_t>& steps) const {
    Counts counts;
    counts.groups.resize(newest_.size());
    for (std::size_t c = 0; c < list_.size(); ++c) {
        int64_t& most = counts.groups[static_cast<std::size_t>(list_[c].group)];
        most = std::max(most, steps[c]);
    }
    for (const int32_t cohort : of_parameter_) {
        counts.parameters.push_back(steps[static_cast<std::size_t>(cohort)]);
    }
    return counts;
}

void Cohorts::extend(const ParamGroups& groups, const Parameters& parameters,
                     std::vector<int64_t>& steps) {
    steps.resize(list_.size());
    while (newest_.size() < groups.size()) {
        (void)begin(static_cast<int32_t>(newest_.size()), 0, steps);
    }
    for (auto i = static_cast<int32_t>(of_parameter_.size()); i < parameters.count(); ++i) {
        const int32_t group = parameters[i].group;
        const auto newest = static_cast<std::size_t>(newest_[static_cast<std::size_t>(group)]);
        // A count that the caller set before there were parameters is meant for the first of them.
        const bool has_begun = steps[newest] != 0 && has_members(group);
        join(has_begun ? begin(group, 0, steps) : static_cast<int32_t>(newest), parameters[i]);
    }
}

const std::vector<numerics::GroupHyper>& Cohorts::hyper(const ParamGroups& groups) {
    hyper_.clear();
    for (const Cohort& cohort : list_) {
        hyper_.push_back(groups.hyper(cohort.group));
        hyper_.back().enabled = hyper_.back().enabled && cohort.has_members && !cohort.is_unused;
    }
    return hyper_;
}

} // namespace mp::optim
