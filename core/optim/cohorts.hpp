// SPDX-License-Identifier: Apache-2.0
// Cohorts: the parameters of a group that took part in as many steps share a count of them, t. A group has one cohort, and one
// more for each time that parameters came to it after its steps had begun: their bias correction begins with them; and for those
// that a step passes over. The device's tables have a row a cohort. Knows nothing of the device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "optim/groups.hpp"
#include "optim/parameters.hpp"

namespace mp::optim {

class Cohorts {
  public:
    Cohorts() = default;
    // t of each group, and of each parameter.
    struct Counts {
        std::vector<int64_t> groups;
        std::vector<int64_t> parameters;
    };
    // Of a checkpoint, say. `unused`: parameters that take no part in steps, sorted. `steps` becomes t of each cohort.
    Cohorts(const Parameters& parameters, const Counts& counts, std::span<const int32_t> unused,
            std::vector<int64_t>& steps);

    // Takes in the groups and parameters that came since. `steps` is t of each cohort, before and after.
    void extend(const ParamGroups& groups, const Parameters& parameters,
                std::vector<int64_t>& steps);

    [[nodiscard]] int32_t of(int32_t parameter) const {
        return of_parameter_[static_cast<std::size_t>(parameter)];
    }
    [[nodiscard]] bool knows(int32_t group) const noexcept {
        return static_cast<std::size_t>(group) < newest_.size();
    }
    // `steps` is t of each cohort. A group's is the most that any of its parameters has.
    [[nodiscard]] Counts counts(const std::vector<int64_t>& steps) const;
    [[nodiscard]] std::size_t size() const noexcept { return list_.size(); }
    [[nodiscard]] int32_t group(std::size_t cohort) const { return list_[cohort].group; }
    // What the device reads of each. One whose parameters are none, or unused, takes no part in steps. Lasts until the next call.
    const std::vector<numerics::GroupHyper>& hyper(const ParamGroups& groups);

  private:
    struct Cohort {
        int32_t group;
        bool has_members; // that are trained
        bool is_unused;
    };
    int32_t begin(int32_t group, int64_t step, std::vector<int64_t>& steps, bool is_unused = false);
    void join(int32_t cohort, const Parameter& parameter);
    [[nodiscard]] bool has_members(int32_t group) const;

    std::vector<Cohort> list_;
    std::vector<int32_t> newest_;       // of each group
    std::vector<int32_t> of_parameter_; // by index
    std::vector<numerics::GroupHyper> hyper_;
};

} // namespace mp::optim
