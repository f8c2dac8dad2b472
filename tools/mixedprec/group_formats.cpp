// SPDX-License-Identifier: Apache-2.0
#include "group_formats.hpp"

#include <algorithm>
#include <array>

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

bool is_state_of_a_parameter(std::string state) {
    constexpr std::string_view kScales = "_scale_inv";
    if (state.size() > kScales.size() && state.ends_with(kScales)) {
        state.resize(state.size() - kScales.size());
    }
    constexpr std::array kStates = {"param", "exp_avg", "exp_avg_sq", "compensation", "master"};
    return std::find(kStates.begin(), kStates.end(), state) != kStates.end();
}

void GroupFormats::add(int32_t group, const Json& tensor) {
    Member& member = groups_.at(static_cast<size_t>(group))[tensor.at("name")];
    member.count = 1;
    for (const Json& size : tensor.at("shape")) {
        member.count *= size.get<int64_t>();
    }
    member.formats[tensor.at("state")] = tensor.at("format");
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
    const auto gives_all = [&](const std::string& format) {
        return std::all_of(members.begin(), members.end(),
                           [&](const auto& member) { return gives(format, member.second, state); });
    };
    const std::string recipes = recipe_.get_string(state == "exp_avg" ? MP_RECIPE_EXP_AVG_DTYPE
                                                                      : MP_RECIPE_EXP_AVG_SQ_DTYPE);
    if (gives_all(recipes)) {
        return {};
    }
    for (const auto& [name, member] : members) {
        const auto stored = member.formats.find(state);
        if (stored != member.formats.end() && gives_all(stored->second)) {
            return stored->second;
        }
    }
    throw Failure("the parameters of group ", group, ", such as '", members.begin()->first,
                  "', have ", state, " in formats that one group does not give");
}

} // namespace command
