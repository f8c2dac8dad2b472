// SPDX-License-Identifier: Apache-2.0
#include "optim/saved_groups.hpp"

#include "status/status.hpp"

namespace mp::optim {
namespace {

constexpr int32_t kNone = -1;

// A parameter of each group, of those here or of those saved; kNone: it has none.
using Members = std::vector<int32_t>;

void check_same_members(const Parameters& parameters, const std::vector<int32_t>& saved_group,
                        Members& of_saved, Members& of_live) {
    for (int32_t i = 0; i < parameters.count(); ++i) {
        const int32_t saved = saved_group[static_cast<std::size_t>(i)];
        const int32_t live = parameters[i].group;
        int32_t& before = of_saved[static_cast<std::size_t>(saved)];
        int32_t& beside = of_live[static_cast<std::size_t>(live)];
        before = before == kNone ? i : before;
        beside = beside == kNone ? i : beside;
        if (parameters[before].group != live) {
            fail(Code::bad_state,
                 "optimizer: '%s' and '%s' were saved in one group, %d, but are in groups %d and "
                 "%d; add parameters that shared a group to one group",
                 parameters[before].name.c_str(), parameters[i].name.c_str(), saved,
                 parameters[before].group, live);
        }
        if (saved_group[static_cast<std::size_t>(beside)] != saved) {
            fail(Code::bad_state,
                 "optimizer: '%s' and '%s' were saved in groups %d and %d, but are in one group, "
                 "%d; add parameters of different groups to different groups",
                 parameters[beside].name.c_str(), parameters[i].name.c_str(),
                 saved_group[static_cast<std::size_t>(beside)], saved, live);
        }
    }
}

// Those without a parameter, in their order.
std::vector<std::size_t> empty_groups(const Members& members) {
    std::vector<std::size_t> empty;
    for (std::size_t g = 0; g < members.size(); ++g) {
        if (members[g] == kNone) {
            empty.push_back(g);
        }
    }
    return empty;
}

} // namespace

std::vector<int32_t> match_groups(const Parameters& parameters,
                                  const std::vector<int32_t>& saved_group, std::size_t saved,
                                  std::size_t groups) {
    Members of_saved(saved, kNone);
    Members of_live(groups, kNone);
    check_same_members(parameters, saved_group, of_saved, of_live);
    const std::vector<std::size_t> empty_saved = empty_groups(of_saved);
    const std::vector<std::size_t> empty_live = empty_groups(of_live);
    if (empty_saved.size() != empty_live.size()) {
        const bool more_here = empty_live.size() > empty_saved.size();
        const std::size_t odd =
            more_here ? empty_live[empty_saved.size()] : empty_saved[empty_live.size()];
        fail(Code::bad_state,
             "optimizer: %zu group(s) were saved, but there are %zu: group %zu %s has no "
             "parameters, and no counterpart; %s",
             saved, groups, odd, more_here ? "here" : "of the checkpoint",
             more_here ? "add it after the load" : "add one without parameters");
    }
    std::vector<int32_t> to(saved, kNone);
    for (std::size_t s = 0; s < saved; ++s) {
        to[s] = of_saved[s] != kNone ? parameters[of_saved[s]].group : kNone;
    }
    for (std::size_t k = 0; k < empty_saved.size(); ++k) {
        to[empty_saved[k]] = static_cast<int32_t>(empty_live[k]);
    }
    return to;
}

} // namespace mp::optim
