// SPDX-License-Identifier: Apache-2.0
// Which arrays and roundings go together in an optimizer step, beyond the formats that each array may have: the one list, which
// kernels' supports(), the arguments of a step and the check of a recipe all read.
#pragma once

#include <tuple>

#include "dtype/format_id.hpp"
#include "numerics/rules.hpp"
#include "status/status.hpp"

namespace mp {

// The formats of a parameter's arrays, and how what is stored is rounded.
struct StepLayout {
    FormatId param = FormatId::none;
    FormatId master = FormatId::none;
    FormatId compensation = FormatId::none;
    FormatId states[numerics::kMaxStates] = {};
    bool half_away = false; // the parameter, made of its master
    bool stochastic_param = false;
    bool stochastic_states[numerics::kMaxStates] = {};

    [[nodiscard]] constexpr bool has_remainder() const { return master == FormatId::remainder16; }
};

// The conditions are tuples and not arrays of pointers to functions: a step looks at them for each of its parameters.
template <class Holds> struct LayoutCondition {
    Code code;        // of a step that breaks it
    Holds holds;      // bool (const StepLayout&)
    const char* keys; // of a recipe, which say it
    const char* reason;
};
template <class Holds>
LayoutCondition(Code, Holds, const char*, const char*) -> LayoutCondition<Holds>;
inline constexpr std::tuple kLayoutConditions = {
    LayoutCondition{
        Code::invalid_argument,
        [](const StepLayout& s) {
            return s.master == FormatId::none || s.compensation == FormatId::none;
        },
        "optimizer.compensation.dtype, master.dtype",
        "both master and compensation are given; a master weight loses nothing, choose one"},
    LayoutCondition{
        Code::invalid_argument,
        [](const StepLayout& s) { return !is_scaled(s.param) || s.compensation == FormatId::none; },
        "optimizer.compensation.dtype, weight.dtype",
        "a compensation is given for a parameter with a scale; Kahan's belongs to parameters "
        "without one"},
    LayoutCondition{
        Code::invalid_dtype,
        [](const StepLayout& s) { return !s.has_remainder() || s.param == FormatId::bf16; },
        "master.dtype, weight.dtype",
        "a remainder is int16 beside a bf16 parameter without a scale: the 16 bits that it lacks "
        "of an fp32 one"},
    LayoutCondition{
        Code::invalid_argument,
        [](const StepLayout& s) {
            const bool is_of_fp32 = s.master == FormatId::fp32 || s.has_remainder();
            return !s.half_away || (s.param == FormatId::bf16 && is_of_fp32);
        },
        "optimizer.weight.rounding",
        "nearest_away is for bf16 weights made from fp32 masters: set weight.dtype to bf16 and "
        "master.dtype to fp32 or remainder16, or the rounding to nearest"},
    LayoutCondition{
        Code::invalid_argument,
        [](const StepLayout& s) {
            return !s.stochastic_param || (!s.half_away && !s.has_remainder());
        },
        "optimizer.weight.rounding, master.dtype",
        "a parameter whose halves go away from zero, as beside a remainder, is rounded in this one "
        "way, not stochastically"},
};

template <class Holds> struct StateCondition {
    Holds holds;      // bool (FormatId format, bool is_signed, bool is_stochastic)
    bool is_computed; // by kernels all the same; it does not train
    const char* reason;
};
template <class Holds> StateCondition(Holds, bool, const char*) -> StateCondition<Holds>;
inline constexpr std::tuple kStateConditions = {
    StateCondition{
        [](FormatId format, bool /*is_signed*/, bool is_stochastic) {
            return !is_stochastic || !is_map(format);
        },
        false,
        "has codes of a map (int8, int4), which are rounded to nearest only, never stochastically"},
    StateCondition{
        [](FormatId format, bool is_signed, bool /*is_stochastic*/) {
            return is_signed || format != FormatId::e4m3_scaled;
        },
        true,
        "is fp8_e4m3 with one scale, which holds second moments with a ratio of at most 2.3e5, "
        "that "
        "is gradients with a ratio of 479; smaller ones become 0 and the next step of their "
        "parameter is thousands of times too large; use fp16 with a scale, or fp8_e4m3 in blocks"},
};

// body(condition) of each; false where it was for one, and then no more of them.
template <class Conditions, class Body>
constexpr bool all_of(const Conditions& conditions, const Body& body) {
    return std::apply([&](const auto&... each) { return (body(each) && ...); }, conditions);
}

// A parameter alone, rounded to nearest, breaks none of a layout's: so most steps need not ask.
constexpr bool is_free_alone(FormatId param) {
    StepLayout alone;
    alone.param = param;
    return all_of(kLayoutConditions, [&](const auto& condition) { return condition.holds(alone); });
}
#define FORMAT(id, name, dtype, coding, roles) static_assert(is_free_alone(FormatId::id));
#include "dtype/formats.def"

} // namespace mp
