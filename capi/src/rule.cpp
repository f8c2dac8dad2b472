// SPDX-License-Identifier: Apache-2.0
// rule.h
#include "mixedprec/rule.h"

#include <cstring>
#include <string>

#include "boundary.hpp"
#include "rule_number.hpp"
#include "versioned_struct.hpp"

using namespace mp;
using namespace mp::capi;

namespace {

static_assert(MP_STATE_EXP_AVG == static_cast<int32_t>(numerics::StateId::exp_avg) &&
              MP_STATE_EXP_AVG_SQ == static_cast<int32_t>(numerics::StateId::exp_avg_sq) &&
              numerics::kStateIdCount <= MP_MAX_STATES &&
              numerics::kMaxStates == MP_MAX_RULE_STATES);

numerics::RuleInfo info_of(int32_t rule) { return numerics::rule_info(rule_of(rule)); }

// What the rule has so many of.
void check_index(int32_t index, int count, const numerics::RuleInfo& rule, const char* what) {
    if (index < 0 || index >= count) {
        fail(Code::invalid_argument, "index is %d; %s has %d %s", index, rule.name, count, what);
    }
}

int32_t number_of(const char* name) {
    std::string known;
    for (int32_t rule = 0; static_cast<uint32_t>(rule) < numerics::kRuleCount; ++rule) {
        const char* const here = info_of(rule).name;
        if (std::strcmp(here, name) == 0) {
            return rule;
        }
        known += (rule == 0 ? "" : ", ") + std::string(here);
    }
    fail(Code::unknown_name, "there is no rule '%.60s'; there are %s", name, known.c_str());
}

} // namespace

mp_status mp_rule_get_count(int32_t* count) {
    return boundary([&] { *required(count, "count") = numerics::kRuleCount; });
}

mp_status mp_rule_get_number(const char* name, int32_t* rule) {
    return boundary([&] {
        int32_t* const out = required(rule, "rule");
        *out = number_of(required(name, "name"));
    });
}

mp_status mp_rule_get_info(int32_t rule, mp_rule_info* info) {
    return boundary([&] {
        const numerics::RuleInfo known = info_of(rule);
        mp_rule_info result{};
        result.corrects_bias = known.corrects_bias ? 1 : 0;
        result.name = known.name;
        result.state_count = known.state_count;
        result.hyper_count = known.hyper_count;
        write_struct(info, result, "info");
    });
}

mp_status mp_rule_get_state(int32_t rule, int32_t index, mp_rule_state* state) {
    return boundary([&] {
        const numerics::RuleInfo known = info_of(rule);
        check_index(index, known.state_count, known, "states");
        mp_rule_state result{};
        result.is_signed = known.state(index).is_signed ? 1 : 0;
        result.name = known.state(index).name;
        result.number = static_cast<int32_t>(known.states[index]);
        write_struct(state, result, "state");
    });
}

mp_status mp_rule_get_hyper(int32_t rule, int32_t index, mp_rule_hyper* hyper) {
    return boundary([&] {
        const numerics::RuleInfo known = info_of(rule);
        check_index(index, known.hyper_count, known, "hyperparameters");
        mp_rule_hyper result{};
        result.name = numerics::hyper_name(known.hypers[index].value);
        result.usual = known.hypers[index].usual;
        result.limit = known.hypers[index].limit;
        write_struct(hyper, result, "hyper");
    });
}

const char* mp_rule_state_name(int32_t state) {
    return state >= 0 && state < numerics::kStateIdCount ? numerics::kStateSpecs[state].name
                                                         : nullptr;
}
