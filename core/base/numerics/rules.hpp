// SPDX-License-Identifier: Apache-2.0
// The rules of the optimizer (numerics/rules/): what a kernel reads of a group's, and the choice by its number.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "numerics/rules/adamw.hpp"
#include "numerics/rules/lion.hpp"

namespace mp::numerics {

inline constexpr uint32_t kRuleCount = 0
#define X(number, id, Rule) +1
#include "numerics/rules/rules.def"
#undef X
    ;
#define X(number, id, Rule)                                                                        \
    static_assert((number) < kRuleCount, "rules are numbered from 0, without a gap");              \
    static_assert(Rule::kStateCount == sizeof(Rule::kStates) / sizeof(StateId));                   \
    static_assert(Rule::kStateCount <= kMaxStates);
#include "numerics/rules/rules.def"
#undef X

// How a step rounds its states is said by their place in a segment, for all rules: so a state has one place.
constexpr bool states_have_one_place() {
    int place_of[kStateIdCount];
    for (int& place : place_of) {
        place = -1;
    }
    bool have = true;
    const auto visit = [&](const StateId* states, int count) {
        for (int k = 0; k < count; ++k) {
            int& place = place_of[static_cast<int>(states[k])];
            have = have && (place < 0 || place == k);
            place = k;
        }
    };
#define X(number, id, Rule) visit(Rule::kStates, Rule::kStateCount);
#include "numerics/rules/rules.def"
#undef X
    return have;
}
static_assert(states_have_one_place());

// What is known of a rule outside of kernels.
struct RuleInfo {
    const char* name;
    int state_count;
    const StateId* states;
    int hyper_count;
    const HyperSpec* hypers;
    bool corrects_bias;

    [[nodiscard]] const StateSpec& state(int k) const { return state_spec(states[k]); }
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

// All others are 0.
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

inline const HyperSpec* find_hyper(const RuleInfo& rule, std::string_view name) {
    for (const HyperName& known : kHyperNames) {
        if (name == known.name) {
            return find_hyper(rule, known.value);
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

// "lr, beta1": all that the rule reads.
inline std::string hyper_names(const RuleInfo& rule) {
    std::string names;
    for (int i = 0; i < rule.hyper_count; ++i) {
        names.append(i == 0 ? "" : ", ").append(hyper_name(rule.hypers[i].value));
    }
    return names;
}

// Whether a hyperparameter that a rule does not read was left as it is: 0, or what is usual for a rule that reads it, which a
// caller that keeps its numbers in single precision gives rounded.
inline bool is_left_alone(HyperValue hyper, double value) {
    const auto is_usual = [&](const RuleInfo& rule) {
        const HyperSpec* const read = find_hyper(rule, hyper);
        return read != nullptr && static_cast<float>(value) == static_cast<float>(read->usual);
    };
    bool is = value == 0.0;
    for (uint32_t rule = 0; rule < kRuleCount; ++rule) {
        is = is || is_usual(rule_info(static_cast<RuleId>(rule)));
    }
    return is;
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

// The rule's hyperparameters from memory, in its order. Their places are template arguments, as a device has no such array.
template <HyperValue kHyper> MP_HD_INLINE void set_hyper(GroupHyper& hyper, double value) {
    hyper.*kHyper = value;
}
template <class Rule, int... kIndexes>
MP_HD_INLINE void read_hypers(GroupHyper& hyper, const double* values,
                              std::integer_sequence<int, kIndexes...> /*all*/) {
    (set_hyper<Rule::kHypers[kIndexes].value>(hyper, values[kIndexes]), ...);
}

MP_HD inline GroupScalars group_scalars(const GroupHyper& hyper, int64_t step, double grad_mul) {
    GroupHyper now = hyper;
    if (hyper.device_lr != nullptr) {
        now.lr = static_cast<double>(*hyper.device_lr);
    }
    GroupScalars group;
    group.rule = hyper.rule;
    group.grad_mul = static_cast<float>(hyper.maximize ? -grad_mul : grad_mul);
    with_rule(hyper.rule, [&](auto rule) {
        using Rule = decltype(rule);
        if (hyper.device_values != nullptr) {
            constexpr int kCount = sizeof(Rule::kHypers) / sizeof(HyperSpec);
            read_hypers<Rule>(now, hyper.device_values, std::make_integer_sequence<int, kCount>{});
        }
        group.set(Rule::scalars(now, step));
    });
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
