// SPDX-License-Identifier: Apache-2.0
// The formats of states that a group of a checkpoint was added with. A manifest has those of each tensor alone: a small one is
// fp32 where its group has blocks, and so is a scaled one beside an fp32 weight.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "support.hpp"

namespace command {

// A state that some rule keeps.
bool is_rule_state(const std::string& state);
// All that the optimizer keeps of a parameter, scales too.
bool is_state_of_a_parameter(std::string state);

class GroupFormats {
  public:
    GroupFormats(const mixedprec::Recipe& recipe, uint64_t groups)
        : recipe_(recipe), groups_(static_cast<size_t>(groups)) {}

    // A tensor of the manifest that is a parameter or one of its rule's states.
    void add(int32_t group, const Json& tensor);
    // Empty where it is the recipe's, with its rules. Throws where no format gives what the group's tensors have.
    [[nodiscard]] std::string find(uint64_t group, const std::string& state) const;

  private:
    struct Member {
        int64_t count = 0;
        std::map<std::string, std::string> formats; // by state
    };
    [[nodiscard]] std::string by_recipe(const std::string& name, const std::string& state) const;
    [[nodiscard]] bool gives(const std::string& format, const Member& member,
                             const std::string& state) const;

    const mixedprec::Recipe& recipe_;
    std::vector<std::map<std::string, Member>> groups_; // by parameter
};

} // namespace command
