// SPDX-License-Identifier: Apache-2.0
// One AdamW update of one element in fp32 registers, and the scalars it needs. Every backend's kernel calls
// these functions and nothing else, so the bits are the same everywhere: no contraction, IEEE sqrt and
// division, and a written order of operations.
// Formula: Loshchilov & Hutter, "Decoupled weight decay regularization"; bias corrections folded into scalars.
// With l2 set, the decay is a part of the gradient instead: Kingma & Ba, "Adam", as torch.optim.Adam has it.
#pragma once

#include <cmath>
#include <cstdint>

#include "numerics/host_device.hpp"

namespace mp::numerics {

// Hyperparameters of one group, as the caller set them.
struct AdamwHyper {
    double lr = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0.0;
    bool l2 = false;             // weight_decay * p is added to the gradient: Adam, not AdamW
    bool maximize = false;       // the gradient's sign is turned
    bool bias_correction = true; // without: both corrections are 1
    bool enabled = true;         // a group that is off takes no step, and its count stays
    // Instead of lr, in the device's memory, where the caller may change it between steps.
    const float* device_lr = nullptr;

    [[nodiscard]] MP_HD double current_lr() const {
        return device_lr != nullptr ? static_cast<double>(*device_lr) : lr;
    }
};

// What the kernel reads: computed in double once a step, rounded once.
struct AdamwScalars {
    float grad_mul = 1.0F; // unscale x clip
    float beta1 = 0.0F;
    float one_minus_beta1 = 0.0F;
    float beta2 = 0.0F;
    float one_minus_beta2 = 0.0F;
    float inv_sqrt_bias2 = 0.0F; // 1 / sqrt(1 - beta2^t)
    float eps = 0.0F;
    float step_size = 0.0F; // lr / (1 - beta1^t)
    float decay = 0.0F;     // lr * weight_decay; 0 where that is in the gradient
    float l2 = 0.0F;        // weight_decay where it is in the gradient, else 0
};

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

MP_HD inline AdamwScalars adamw_scalars(const AdamwHyper& hyper, int64_t step, double grad_mul) {
    const double bias1 = hyper.bias_correction ? 1.0 - integer_power(hyper.beta1, step) : 1.0;
    const double bias2 = hyper.bias_correction ? 1.0 - integer_power(hyper.beta2, step) : 1.0;
    const double lr = hyper.current_lr();
    AdamwScalars scalars;
    scalars.grad_mul = static_cast<float>(hyper.maximize ? -grad_mul : grad_mul);
    scalars.beta1 = static_cast<float>(hyper.beta1);
    scalars.one_minus_beta1 = static_cast<float>(1.0 - hyper.beta1);
    scalars.beta2 = static_cast<float>(hyper.beta2);
    scalars.one_minus_beta2 = static_cast<float>(1.0 - hyper.beta2);
    scalars.inv_sqrt_bias2 = static_cast<float>(1.0 / sqrt(bias2));
    scalars.eps = static_cast<float>(hyper.eps);
    scalars.step_size = static_cast<float>(lr / bias1);
    scalars.decay = hyper.l2 ? 0.0F : static_cast<float>(lr * hyper.weight_decay);
    scalars.l2 = hyper.l2 ? static_cast<float>(hyper.weight_decay) : 0.0F;
    return scalars;
}

// Advances the moments and returns the change of the parameter, weight decay included. The moments are used
// unrounded here and rounded only when stored.
MP_HD_INLINE float adamw_delta(const AdamwScalars& s, float p, float grad, float& m, float& v) {
    const float g = grad * s.grad_mul;
    m = s.beta1 * m + s.one_minus_beta1 * g;
    v = s.beta2 * v + s.one_minus_beta2 * (g * g);
    const float denominator = sqrtf(v) * s.inv_sqrt_bias2 + s.eps;
    return -(s.decay * p) - s.step_size * (m / denominator);
}

// The same with the decay in the gradient.
MP_HD_INLINE float adam_delta(const AdamwScalars& s, float p, float grad, float& m, float& v) {
    const float g = grad * s.grad_mul + s.l2 * p;
    m = s.beta1 * m + s.one_minus_beta1 * g;
    v = s.beta2 * v + s.one_minus_beta2 * (g * g);
    const float denominator = sqrtf(v) * s.inv_sqrt_bias2 + s.eps;
    return -(s.step_size * (m / denominator));
}

// One of the two, by the scalars; kernels choose outside their loops.
MP_HD_INLINE float rule_delta(const AdamwScalars& s, float p, float grad, float& m, float& v) {
    return s.l2 != 0.0F ? adam_delta(s, p, grad, m, v) : adamw_delta(s, p, grad, m, v);
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
