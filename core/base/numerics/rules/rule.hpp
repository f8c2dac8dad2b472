// SPDX-License-Identifier: Apache-2.0
// What a rule of the optimizer is made of. A rule (adamw.hpp beside this file is the model) has
//   kStates, kStateCount   the states it keeps for each element, of states.def; all begin at zero
//   kHypers                the hyperparameters it reads, with their usual values and ranges: all that anyone knows of them
//   kCorrectsBias          whether GroupHyper::bias_correction has a meaning
//   Scalars                what its arithmetic reads: floats only, worked out in double once a step, rounded once
//   scalars(hyper, step)   of a group's t-th step
//   delta(s, w, g, x)      the change of a weight w by its gradient g, unscaled and clipped; advances the states x
// Every backend's kernel calls these functions and nothing else, so the bits are the same everywhere: no contraction, IEEE
// square root and division, and a written order of operations. rules.def lists the rules.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "dtype/host_device.hpp"

namespace mp::numerics {

inline constexpr int kMaxStates = 4; // of one rule

// The names are stored in checkpoints, and numbers and names are the C interface's: they never change.
enum class StateId : int32_t {
#define X(number, id, is_signed, text) id = (number),
#include "numerics/rules/states.def"
#undef X
};
inline constexpr int kStateIdCount = 0
#define X(number, id, is_signed, text) +1
#include "numerics/rules/states.def"
#undef X
    ;
struct StateSpec {
    const char* name;
    bool is_signed;
    const char* text;
};
inline constexpr StateSpec kStateSpecs[] = {
#define X(number, id, is_signed, text) {#id, is_signed, text},
#include "numerics/rules/states.def"
#undef X
};
#define X(number, id, is_signed, text)                                                             \
    static_assert(std::string_view(kStateSpecs[number].name) == #id, "in the order of the "        \
                                                                     "numbers");
#include "numerics/rules/states.def"
#undef X
constexpr const StateSpec& state_spec(StateId state) {
    return kStateSpecs[static_cast<int>(state)];
}

// The numbers are stored in checkpoints and never change.
enum class RuleId : uint32_t {
#define X(number, id, Rule) id = (number),
#include "numerics/rules/rules.def"
#undef X
};

// body(StateIndex<k>{}) for each of a rule's states: written out, where a loop over k would have to be unrolled.
template <int kState> struct StateIndex { static constexpr int kIndex = kState; };
template <class Rule, int kState = 0, class Body> MP_HD_INLINE void for_each_state(Body&& body) {
    if constexpr (kState < Rule::kStateCount) {
        body(StateIndex<kState>{});
        for_each_state<Rule, kState + 1>(body);
    }
}

// Whether body(k) holds for any k below kMaxStates: written out likewise.
template <class Body, int... kStates>
MP_HD_INLINE constexpr bool any_state(const Body& body,
                                      std::integer_sequence<int, kStates...> /*all*/) {
    return (body(kStates) || ...);
}
template <class Body> MP_HD_INLINE constexpr bool any_state(const Body& body) {
    return any_state(body, std::make_integer_sequence<int, kMaxStates>{});
}

// A bit for each state that has a sign: a number, so that no code refers to an array (kernels are compiled for several
// instruction sets, and for devices).
template <class Rule>
inline constexpr uint32_t kSignedStates = [] {
    uint32_t bits = 0;
    for (int k = 0; k < Rule::kStateCount; ++k) {
        bits |= state_spec(Rule::kStates[k]).is_signed ? 1U << k : 0U;
    }
    return bits;
}();
template <class Rule> MP_HD_INLINE constexpr bool is_signed_state(int k) {
    constexpr uint32_t kBits = kSignedStates<Rule>;
    return (kBits >> k & 1U) != 0;
}

// Hyperparameters of one group, as the caller set them; what is usual for a rule: usual_hyper.
struct GroupHyper {
    double lr = 0.0;
    double beta1 = 0.0;
    double beta2 = 0.0;
    double eps = 0.0;
    double weight_decay = 0.0;
    RuleId rule = RuleId::adamw;
    bool maximize = false;       // the gradient's sign is flipped
    bool bias_correction = true; // without: both corrections are 1
    bool enabled = true;         // a group that is off takes no step, and its count stays
    // Instead of lr, in the device's memory, where the caller may change it between steps.
    const float* device_lr = nullptr;
    // Instead of all that the rule reads, in its order; likewise.
    const double* device_values = nullptr;
};

// All hyperparameters there are, by their names in the C interface, which never change.
using HyperValue = double GroupHyper::*;
struct HyperName {
    const char* name;
    HyperValue value;
};
inline constexpr HyperName kHyperNames[] = {{"lr", &GroupHyper::lr},
                                            {"beta1", &GroupHyper::beta1},
                                            {"beta2", &GroupHyper::beta2},
                                            {"eps", &GroupHyper::eps},
                                            {"weight_decay", &GroupHyper::weight_decay}};

// One as a rule reads it: in [0, limit).
struct HyperSpec {
    HyperValue value;
    double usual;
    double limit;
};
inline constexpr double kLargeHyper = 1e30; // so that no scalar of the step overflows fp32

// base^exponent by squaring: unlike pow it has the same bits on every device.
MP_HD inline double integer_power(double base, int64_t exponent) {
    double result = 1.0;
    for (; exponent > 0; exponent >>= 1) {
        if ((exponent & 1) != 0) {
            result *= base;
        }
        base *= base;
    }
    return result;
}

} // namespace mp::numerics
