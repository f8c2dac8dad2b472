// SPDX-License-Identifier: Apache-2.0
// Cohorts: the parameters of a group that began together share a count of steps, t. A group has one cohort, and one more for
// each time that parameters came to it after its steps had begun: their bias correction begins with them. The device's
// tables have a row a cohort. Knows nothing of the device.
#pragma once

#include <cstdint>
#include <vector>

#include "optim/groups.hpp"
#include "optim/parameters.hpp"

namespace mp::optim {

class Cohorts {
  public:
    Cohorts() = default;
    // Of a checkpoint: t of each group, and of each parameter. `steps` becomes t of each cohort.
    Cohorts(const Parameters& parameters, const std::vector<int64_t>& group_steps,
            const std::vector<int64_t>& param_steps, std::vector<int64_t>& steps);

    // Takes in the groups and parameters that came since. `steps` is t of each cohort, before and after.
    void extend(const ParamGroups& groups, const Parameters& parameters,
                std::vector<int64_t>& steps);

    [[nodiscard]] int32_t of(int32_t parameter) const {
        return of_parameter_[static_cast<std::size_t>(parameter)];
    }
    [[nodiscard]] bool knows(int32_t group) const noexcept {
        return static_cast<std::size_t>(group) < first_.size();
    }
    // That which the group began with.
    [[nodiscard]] int32_t first(int32_t group) const {
        return first_[static_cast<std::size_t>(group)];
    }
    [[nodiscard]] std::size_t size() const noexcept { return list_.size(); }
    [[nodiscard]] int32_t group(std::size_t cohort) const { return list_[cohort].group; }
    // What the device reads of each. One without parameters takes no part in steps. Lasts until the next call.
    const std::vector<numerics::GroupHyper>& hyper(const ParamGroups& groups);

  private:
    struct Cohort {
        int32_t group;
        bool has_members;
    };
    int32_t begin(int32_t group, int64_t step, std::vector<int64_t>& steps);
    void join(int32_t cohort, const Parameter& parameter);

    std::vector<Cohort> list_;
    std::vector<int32_t> first_;        // of each group
    std::vector<int32_t> newest_;       // likewise
    std::vector<int32_t> of_parameter_; // by index
    std::vector<numerics::GroupHyper> hyper_;
};

} // namespace mp::optim
