// SPDX-License-Identifier: Apache-2.0
#include "optim/cohorts.hpp"

#include <map>
#include <utility>

namespace mp::optim {

int32_t Cohorts::begin(int32_t group, int64_t step, std::vector<int64_t>& steps) {
    const auto cohort = static_cast<int32_t>(list_.size());
    const auto g = static_cast<std::size_t>(group);
    list_.push_back({group, false});
    steps.push_back(step);
    if (g == first_.size()) {
        first_.push_back(cohort);
        newest_.push_back(cohort);
    }
    newest_[g] = cohort;
    return cohort;
}

void Cohorts::join(int32_t cohort, const Parameter& parameter) {
    bool& has_members = list_[static_cast<std::size_t>(cohort)].has_members;
    has_members = has_members || !parameter.layout.is_frozen;
    of_parameter_.push_back(cohort);
}

Cohorts::Cohorts(const Parameters& parameters, const std::vector<int64_t>& group_steps,
                 const std::vector<int64_t>& param_steps, std::vector<int64_t>& steps) {
    std::map<std::pair<int32_t, int64_t>, int32_t> known;
    steps.clear();
    for (std::size_t g = 0; g < group_steps.size(); ++g) {
        const auto group = static_cast<int32_t>(g);
        known[{group, group_steps[g]}] = begin(group, group_steps[g], steps);
    }
    for (int32_t i = 0; i < parameters.count(); ++i) {
        const int32_t group = parameters[i].group;
        const int64_t step = param_steps[static_cast<std::size_t>(i)];
        const auto found = known.find({group, step});
        const int32_t cohort = found != known.end() ? found->second : begin(group, step, steps);
        known[{group, step}] = cohort;
        join(cohort, parameters[i]);
    }
}

void Cohorts::extend(const ParamGroups& groups, const Parameters& parameters,
                     std::vector<int64_t>& steps) {
    steps.resize(list_.size());
    while (first_.size() < groups.size()) {
        (void)begin(static_cast<int32_t>(first_.size()), 0, steps);
    }
    for (auto i = static_cast<int32_t>(of_parameter_.size()); i < parameters.count(); ++i) {
        const int32_t group = parameters[i].group;
        const auto newest = static_cast<std::size_t>(newest_[static_cast<std::size_t>(group)]);
        // A count that the caller set before there were parameters is meant for the first of them.
        const bool has_begun = list_[newest].has_members && steps[newest] != 0;
        join(has_begun ? begin(group, 0, steps) : static_cast<int32_t>(newest), parameters[i]);
    }
}

const std::vector<numerics::GroupHyper>& Cohorts::hyper(const ParamGroups& groups) {
    hyper_.clear();
    for (const Cohort& cohort : list_) {
        hyper_.push_back(groups.hyper(cohort.group));
        hyper_.back().enabled = hyper_.back().enabled && cohort.has_members;
    }
    return hyper_;
}

} // namespace mp::optim
