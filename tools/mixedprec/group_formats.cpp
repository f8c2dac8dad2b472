// SPDX-License-Identifier: Apache-2.0
#include "group_formats.hpp"

#include <algorithm>

namespace command {
namespace {

// As optimizer.hpp's state_formats(): what a parameter of so many elements gets where its group asks for `format`.
std::string kept_as(const std::string& format, bool beside_fp32, int64_t count,
                    int64_t smallest_in_blocks) {
    const auto has = [&](const char* part) { return format.find(part) != std::string::npos; };
    const bool in_blocks = has("_block") || has("_companded");
    const bool wide = (beside_fp32 && has("_scaled")) || (in_blocks && count < smallest_in_blocks);
    return wide ? "fp32" : format;
}

} // namespace

bool is_rule_state(const std::string& state) {
    for (int32_t k = 0; mp_rule_state_name(k) != nullptr; ++k) {
        if (state == mp_rule_state_name(k)) {
            return true;
        }
    }
    return false;
}

bool is_state_of_a_parameter(std::string state) {
    constexpr std::string_view kScales = "_scale_inv";
    if (state.size() > kScales.size() && state.ends_with(kScales)) {
        state.resize(state.size() - kScales.size());
    }
    for (const char* own : {"param", "param_amax", "compensation", "master"}) {
        if (state == own) {
            return true;
        }
    }
    return is_rule_state(state);
}

void GroupFormats::add(int32_t group, const Json& tensor) {
    Member& member = groups_.at(static_cast<size_t>(group))[tensor.at("name")];
    member.count = 1;
    for (const Json& size : tensor.at("shape")) {
        member.count *= size.get<int64_t>();
    }
    member.formats[tensor.at("state")] = tensor.at("format");
}

std::string GroupFormats::by_recipe(const std::string& name, const std::string& state) const {
    return recipe_.for_param(name.c_str()).get_string(join("optimizer.", state, ".dtype").c_str());
}

bool GroupFormats::gives(const std::string& format, const Member& member,
                         const std::string& state) const {
    const auto stored = member.formats.find(state);
    const auto param = member.formats.find("param");
    must<Failure>(param != member.formats.end(),
                  "the checkpoint has states of a parameter, but not the parameter itself: it is "
                  "damaged, or somebody has changed it");
    return stored == member.formats.end() ||
           stored->second == kept_as(format, param->second == "fp32", member.count,
                                     recipe_.get_int(MP_RECIPE_BLOCK_MIN_ELEMENTS));
}

std::string GroupFormats::find(uint64_t group, const std::string& state) const {
    const auto& members = groups_.at(static_cast<size_t>(group));
    const auto all_have = [&](const auto& format_of) {
        return std::all_of(members.begin(), members.end(), [&](const auto& member) {
            return gives(format_of(member.first), member.second, state);
        });
    };
    if (all_have([&](const std::string& name) { return by_recipe(name, state); })) {
        return {};
    }
    for (const auto& [name, member] : members) {
        const auto stored = member.formats.find(state);
        if (stored != member.formats.end() &&
            all_have([&](const std::string&) { return stored->second; })) {
            return stored->second;
        }
    }
    throw Failure("the parameters of group ", group, ", such as '", members.begin()->first,
                  "', have ", state, " in formats that one group does not give");
}

} // namespace command
