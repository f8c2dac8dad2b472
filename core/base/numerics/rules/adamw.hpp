// SPDX-License-Identifier: Apache-2.0
// AdamW and Adam. Bias corrections are folded into the scalars. The states are used unrounded here and rounded only when
// stored.
//   AdamW: Loshchilov & Hutter, "Decoupled weight decay regularization".
//   Adam: Kingma & Ba, with the weight decay as a part of the gradient, as torch.optim.Adam has it (L2).
#pragma once

#include <cmath>

#include "numerics/rules/rule.hpp"

namespace mp::numerics {

struct Adamw {
    static constexpr StateId kStates[] = {StateId::exp_avg, StateId::exp_avg_sq};
    static constexpr int kStateCount = 2;
    static constexpr HyperSpec kHypers[] = {{&GroupHyper::lr, 1e-3, kLargeHyper},
                                            {&GroupHyper::beta1, 0.9, 1.0},
                                            {&GroupHyper::beta2, 0.999, 1.0},
                                            {&GroupHyper::eps, 1e-8, kLargeHyper},
                                            {&GroupHyper::weight_decay, 0.0, kLargeHyper}};
    static constexpr bool kCorrectsBias = true;

    struct Scalars {
        float beta1;
        float one_minus_beta1;
        float beta2;
        float one_minus_beta2;
        float inv_sqrt_bias2; // 1 / sqrt(1 - beta2^t)
        float eps;
        float step_size; // lr / (1 - beta1^t)
        float decay;     // lr * weight_decay; Adam: weight_decay
    };

    MP_HD static Scalars scalars(const GroupHyper& hyper, int64_t step) {
        const double bias1 = hyper.bias_correction ? 1.0 - integer_power(hyper.beta1, step) : 1.0;
        const double bias2 = hyper.bias_correction ? 1.0 - integer_power(hyper.beta2, step) : 1.0;
        const double lr = hyper.lr;
        Scalars s;
        s.beta1 = static_cast<float>(hyper.beta1);
        s.one_minus_beta1 = static_cast<float>(1.0 - hyper.beta1);
        s.beta2 = static_cast<float>(hyper.beta2);
        s.one_minus_beta2 = static_cast<float>(1.0 - hyper.beta2);
        s.inv_sqrt_bias2 = static_cast<float>(1.0 / sqrt(bias2));
        s.eps = static_cast<float>(hyper.eps);
        s.step_size = static_cast<float>(lr / bias1);
        s.decay = static_cast<float>(lr * hyper.weight_decay);
        return s;
    }

    // Advances the moments; returns their part of the change.
    MP_HD_INLINE static float advance(const Scalars& s, float g, float (&x)[kMaxStates]) {
        x[0] = s.beta1 * x[0] + s.one_minus_beta1 * g;
        x[1] = s.beta2 * x[1] + s.one_minus_beta2 * (g * g);
        const float denominator = sqrtf(x[1]) * s.inv_sqrt_bias2 + s.eps;
        return s.step_size * (x[0] / denominator);
    }

    MP_HD_INLINE static float delta(const Scalars& s, float w, float g, float (&x)[kMaxStates]) {
        return -(s.decay * w) - advance(s, g, x);
    }
};

struct Adam : Adamw {
    MP_HD static Scalars scalars(const GroupHyper& hyper, int64_t step) {
        Scalars s = Adamw::scalars(hyper, step);
        s.decay = static_cast<float>(hyper.weight_decay);
        return s;
    }

    MP_HD_INLINE static float delta(const Scalars& s, float w, float g, float (&x)[kMaxStates]) {
        return -advance(s, g + s.decay * w, x);
    }
};

} // namespace mp::numerics
