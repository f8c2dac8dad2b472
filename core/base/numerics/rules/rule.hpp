// SPDX-License-Identifier: Apache-2.0
// What a rule of the optimizer is made of. A rule (adamw.hpp beside this file is the model) has
//   kStates, kStateCount   the states it keeps for each element, by name; all begin at zero
//   kHypers                the hyperparameters it reads, with their usual values and ranges: all that anyone knows of them
//   kCorrectsBias          whether GroupHyper::bias_correction has a meaning
//   Scalars                what its arithmetic reads: floats only, worked out in double once a step, rounded once
//   scalars(hyper, step)   of a group's t-th step
//   delta(s, w, g, x)      the change of a weight w by its gradient g, unscaled and clipped; advances the states x
// Every backend's kernel calls these functions and nothing else, so the bits are the same everywhere: no contraction, IEEE
// square root and division, and a written order of operations. rules.def lists the rules.
#pragma once

#include <cstdint>

#include "dtype/host_device.hpp"

namespace mp::numerics {

inline constexpr int kMaxStates = 2;

struct StateSpec {
    const char* name; // in checkpoints and in the C interface; never changes
    bool is_signed;   // codings without a sign spend it on precision
};

// The numbers are stored in checkpoints and never change.
enum class RuleId : uint32_t {
#define X(number, id, Rule) id = (number),
#include "numerics/rules/rules.def"
#undef X
};

// body(StateIndex<k>{}) for each of a rule's states: written out, where a loop over k would have to be unrolled.
template <int kState> struct StateIndex { static constexpr int kIndex = kState; };
template <class Rule, class Body> MP_HD_INLINE void for_each_state(Body&& body) {
    static_assert(kMaxStates == 2);
    body(StateIndex<0>{});
    if constexpr (Rule::kStateCount > 1) {
        body(StateIndex<1>{});
    }
}

// Both written out, so that nothing refers to the array itself: kernels are compiled for several instruction sets.
template <class Rule> MP_HD_INLINE constexpr bool is_signed_state(int k) {
    static_assert(kMaxStates == 2);
    return k == 0 ? Rule::kStates[0].is_signed : Rule::kStates[Rule::kStateCount - 1].is_signed;
}

// Hyperparameters of one group, as the caller set them.
struct GroupHyper {
    double lr = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0.0;
    RuleId rule = RuleId::adamw;
    bool maximize = false;       // the gradient's sign is turned
    bool bias_correction = true; // without: both corrections are 1
    bool enabled = true;         // a group that is off takes no step, and its count stays
    // Instead of lr, in the device's memory, where the caller may change it between steps.
    const float* device_lr = nullptr;
    // Instead of all five, in the order above; likewise.
    const double* device_values = nullptr;

    // As they are at this step.
    [[nodiscard]] MP_HD GroupHyper current() const {
        GroupHyper now = *this;
        if (device_lr != nullptr) {
            now.lr = static_cast<double>(*device_lr);
        }
        if (device_values != nullptr) {
            now.lr = device_values[0];
            now.beta1 = device_values[1];
            now.beta2 = device_values[2];
            now.eps = device_values[3];
            now.weight_decay = device_values[4];
        }
        return now;
    }
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

// Whether a hyperparameter that a rule does not have was left as it is: 0, or its default, which a caller that keeps its
// numbers in single precision gives rounded.
inline bool is_left_alone(double value, double by_default) {
    return value == 0.0 || static_cast<float>(value) == static_cast<float>(by_default);
}

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
