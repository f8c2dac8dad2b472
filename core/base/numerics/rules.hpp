// SPDX-License-Identifier: Apache-2.0
// The rules of the optimizer (numerics/rules/): what a kernel reads of a group's, and the choice by its number.
#pragma once

#include <type_traits>

#include "numerics/rules/adamw.hpp"
#include "numerics/rules/lion.hpp"

namespace mp::numerics {

// Whether a number is that of a rule.
constexpr bool is_rule(uint32_t number) {
    switch (static_cast<RuleId>(number)) {
#define X(number, id, Rule) case RuleId::id:
#include "numerics/rules/rules.def"
#undef X
        return true;
    }
    return false;
}

// What is known of a rule outside of kernels.
struct RuleInfo {
    const char* name;
    int state_count;
    const StateSpec* states;
    int hyper_count;
    const HyperSpec* hypers;
    bool corrects_bias;
};
inline RuleInfo rule_info(RuleId rule) {
    switch (rule) {
#define X(number, id, Rule)                                                                        \
    case RuleId::id:                                                                               \
        return {#id,           Rule::kStateCount,                                                  \
                Rule::kStates, sizeof(Rule::kHypers) / sizeof(HyperSpec),                          \
                Rule::kHypers, Rule::kCorrectsBias};
#include "numerics/rules/rules.def"
#undef X
    }
    __builtin_unreachable(); // core refuses other numbers
}

inline constexpr int kRuleCount = 0
#define X(number, id, Rule) +1
#include "numerics/rules/rules.def"
#undef X
    ;

inline GroupHyper usual_hyper(RuleId rule) {
    const RuleInfo info = rule_info(rule);
    GroupHyper hyper;
    for (int i = 0; i < info.hyper_count; ++i) {
        hyper.*info.hypers[i].value = info.hypers[i].usual;
    }
    hyper.rule = rule;
    return hyper;
}

// How the rule reads this one; null: it does not.
inline const HyperSpec* find_hyper(const RuleInfo& rule, HyperValue value) {
    for (int i = 0; i < rule.hyper_count; ++i) {
        if (rule.hypers[i].value == value) {
            return &rule.hypers[i];
        }
    }
    return nullptr;
}

inline const char* hyper_name(HyperValue value) {
    for (const HyperName& known : kHyperNames) {
        if (known.value == value) {
            return known.name;
        }
    }
    return nullptr; // then it is missing in the list: tests/capi/rule.cpp
}

// Whether what one rule keeps serves the other: Adam and AdamW.
inline bool have_same_states(RuleId a, RuleId b) {
    return rule_info(a).states == rule_info(b).states;
}

// What a kernel reads of a group: its rule, and the scalars of this step.
struct GroupScalars {
    static constexpr int kValues = 10;

    RuleId rule = RuleId::adamw;
    float grad_mul = 1.0F;      // unscale x clip, and the sign
    float values[kValues] = {}; // of Rule::Scalars, as its floats

    template <class Rule> [[nodiscard]] MP_HD_INLINE typename Rule::Scalars as() const {
        typename Rule::Scalars scalars;
        __builtin_memcpy(&scalars, values, sizeof(scalars));
        return scalars;
    }
    template <class Scalars> MP_HD_INLINE void set(const Scalars& scalars) {
        static_assert(sizeof(Scalars) <= sizeof(values));
        static_assert(std::is_trivially_copyable_v<Scalars>);
        __builtin_memcpy(values, &scalars, sizeof(scalars));
    }
};

// body(Rule{}) of the rule with this number. Kernels choose outside their loops.
template <class Body> MP_HD_INLINE auto with_rule(RuleId rule, Body&& body) {
    switch (rule) {
#define X(number, id, Rule)                                                                        \
    case RuleId::id:                                                                               \
        return body(Rule{});
#include "numerics/rules/rules.def"
#undef X
    }
    __builtin_unreachable(); // core refuses other numbers
}

MP_HD inline GroupScalars group_scalars(const GroupHyper& hyper, int64_t step, double grad_mul) {
    const GroupHyper now = hyper.current();
    GroupScalars group;
    group.rule = now.rule;
    group.grad_mul = static_cast<float>(now.maximize ? -grad_mul : grad_mul);
    with_rule(now.rule, [&](auto rule) { group.set(decltype(rule)::scalars(now, step)); });
    return group;
}

// One element's change, where the rule is not known outside a loop.
MP_HD_INLINE float rule_delta(const GroupScalars& group, float w, float grad,
                              float (&x)[kMaxStates]) {
    switch (group.rule) {
#define X(number, id, Rule)                                                                        \
    case RuleId::id:                                                                               \
        return Rule::delta(group.as<Rule>(), w, grad * group.grad_mul, x);
#include "numerics/rules/rules.def"
#undef X
    }
    __builtin_unreachable();
}

// Kahan's compensated p += delta (Fast2Sum: |p| >= |c|): `carry` is what earlier roundings of p lost.
// `store` rounds to the parameter's type and back. Returns the new parameter; carry becomes what is lost now.
template <typename Store>
MP_HD_INLINE float compensated_add(float p, float delta, float& carry, Store store) {
    const float pending = carry + delta;
    const float rounded = store(p + pending);
    carry = pending + (p - rounded);
    return rounded;
}

} // namespace mp::numerics
