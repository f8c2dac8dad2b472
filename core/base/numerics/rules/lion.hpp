// SPDX-License-Identifier: Apache-2.0
// Lion: Chen et al., "Symbolic discovery of optimization algorithms", algorithm 2. One state; the weight moves by the sign
// of a mean that is made before that state is renewed, so every element by lr.
#pragma once

#include "numerics/rules/rule.hpp"

namespace mp::numerics {

struct Lion {
    static constexpr StateId kStates[] = {StateId::exp_avg};
    static constexpr int kStateCount = 1;
    static constexpr HyperSpec kHypers[] = {{&GroupHyper::lr, 1e-4, kLargeHyper},
                                            {&GroupHyper::beta1, 0.9, 1.0},
                                            {&GroupHyper::beta2, 0.99, 1.0},
                                            {&GroupHyper::weight_decay, 0.0, kLargeHyper}};
    static constexpr bool kCorrectsBias = false;

    struct Scalars {
        float beta1;
        float one_minus_beta1;
        float beta2;
        float one_minus_beta2;
        float step_size; // lr
        float decay;     // lr * weight_decay
    };

    MP_HD static Scalars scalars(const GroupHyper& hyper, int64_t /*step*/) {
        const double lr = hyper.lr;
        Scalars s;
        s.beta1 = static_cast<float>(hyper.beta1);
        s.one_minus_beta1 = static_cast<float>(1.0 - hyper.beta1);
        s.beta2 = static_cast<float>(hyper.beta2);
        s.one_minus_beta2 = static_cast<float>(1.0 - hyper.beta2);
        s.step_size = static_cast<float>(lr);
        s.decay = static_cast<float>(lr * hyper.weight_decay);
        return s;
    }

    // The sign of 0 is 0, that of NaN NaN.
    MP_HD_INLINE static float delta(const Scalars& s, float w, float g, float (&x)[kMaxStates]) {
        const float mean = s.beta1 * x[0] + s.one_minus_beta1 * g;
        x[0] = s.beta2 * x[0] + s.one_minus_beta2 * g;
        const float positive = mean > 0.0F ? 1.0F : mean;
        const float sign = mean < 0.0F ? -1.0F : positive;
        return -(s.decay * w) - s.step_size * sign;
    }
};

} // namespace mp::numerics
