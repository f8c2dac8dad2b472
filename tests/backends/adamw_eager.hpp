// SPDX-License-Identifier: Apache-2.0
// AnyPrecisionAdamW of torchdistx (BSD-3) as eager PyTorch computes it on a CPU: one rounding after
// every tensor operation. An oracle of the tests, which torchdistx's own numbers are compared with.
//
// What is rounded inside one PyTorch operation was found by experiment (2.15.0, x86-64) and is written
// at each line. Two things of it are not reproduced: its fp32 square root (MKL's, up to one ulp off;
// here IEEE's), and that where moment and gradient are of one 16-bit type the scalar tail of an array
// (what a whole number of vectors leaves over) also rounds the product of exp_avg's update.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

#include "numerics/codec.hpp"
#include "numerics/rules.hpp"
#include "training.hpp"

namespace mp::test {

struct EagerDTypes {
    DType param = DType::none;
    DType grad = DType::none;
    DType exp_avg = DType::none;
    DType exp_avg_sq = DType::none;
    DType compensation = DType::none; // none: no Kahan summation
};

struct EagerElement {
    float p = 0.0F;
    float m = 0.0F;
    float v = 0.0F;
    float c = 0.0F;
};

// The value after a store in `dtype`.
inline float round_to(DType dtype, float x) {
    uint64_t element = 0;
    numerics::store_from_float(dtype, &element, 0, x, false);
    return numerics::load_as_float(dtype, &element, 0);
}

// The bias corrections of step t. Its count is an fp32 tensor, so these are fp32 throughout.
struct EagerCorrections {
    EagerCorrections(const numerics::GroupHyper& hyper, int64_t step) {
        const auto t = static_cast<float>(step);
        const float bias1 = 1.0F - std::pow(static_cast<float>(hyper.beta1), t);
        const float bias2 = 1.0F - std::pow(static_cast<float>(hyper.beta2), t);
        // A number divided by a tensor is the tensor's reciprocal times the number.
        step_size = (1.0F / bias1) * static_cast<float>(hyper.lr);
        denominator = std::sqrt(bias2);
    }
    float step_size;
    float denominator;
};

// One element of one step.
inline void eager_update(const numerics::GroupHyper& hyper, const EagerCorrections& corrections,
                         const EagerDTypes& types, float grad, EagerElement& e) {
    // p.mul_(1 - lr * weight_decay): the factor in double, then fp32.
    if (hyper.weight_decay != 0.0) {
        const auto factor = static_cast<float>(1.0 - hyper.lr * hyper.weight_decay);
        e.p = round_to(types.param, e.p * factor);
    }

    // exp_avg.mul_(beta1).add_(grad, alpha=1 - beta1): a fused multiply-add, with alpha in the
    // common type of both operands.
    const bool is_one_type = types.exp_avg == types.grad;
    const float alpha =
        round_to(is_one_type ? types.grad : DType::fp32, static_cast<float>(1.0 - hyper.beta1));
    e.m = round_to(types.exp_avg, e.m * static_cast<float>(hyper.beta1));
    e.m = round_to(types.exp_avg, std::fma(alpha, grad, e.m));

    // exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2): the value stays fp32.
    const auto value = static_cast<float>(1.0 - hyper.beta2);
    e.v = round_to(types.exp_avg_sq, e.v * static_cast<float>(hyper.beta2));
    e.v = round_to(types.exp_avg_sq, std::fma(value * grad, grad, e.v));

    // (exp_avg_sq.sqrt() / denom_correction).add_(eps): eps in the type of exp_avg_sq.
    const float root = round_to(types.exp_avg_sq, std::sqrt(e.v));
    const float centered = round_to(types.exp_avg_sq, root / corrections.denominator);
    const float eps = round_to(types.exp_avg_sq, static_cast<float>(hyper.eps));
    const float denominator = round_to(types.exp_avg_sq, centered + eps);

    // target.addcdiv_(exp_avg, denominator, value=-step_size): three fp32 roundings, one store.
    const float change = (-corrections.step_size * e.m) / denominator;
    if (types.compensation == DType::none) {
        e.p = round_to(types.param, e.p + change);
        return;
    }
    e.c = round_to(types.compensation, e.c + change);
    const float old = e.p;
    e.p = round_to(types.param, e.p + e.c);
    e.c = round_to(types.compensation, e.c + round_to(types.param, old - e.p));
}

// Many steps of one parameter, as Training (training.hpp) does them.
class EagerTraining {
  public:
    EagerTraining(ParamArrays start, const numerics::GroupHyper& hyper)
        : arrays_(std::move(start)), hyper_(hyper) {}

    void set_grad(const HostArray& grad) { arrays_.grad = grad; }
    void step() {
        const EagerCorrections corrections(hyper_, ++steps_);
        const EagerDTypes types = {arrays_.param.dtype, arrays_.grad.dtype, arrays_.exp_avg.dtype,
                                   arrays_.exp_avg_sq.dtype, arrays_.compensation.dtype};
        const bool has_compensation = types.compensation != DType::none;
        for (int64_t i = 0; i < arrays_.count(); ++i) {
            EagerElement e = {arrays_.param.get(i), arrays_.exp_avg.get(i),
                              arrays_.exp_avg_sq.get(i),
                              has_compensation ? arrays_.compensation.get(i) : 0.0F};
            eager_update(hyper_, corrections, types, arrays_.grad.get(i), e);
            arrays_.param.set(i, e.p);
            arrays_.exp_avg.set(i, e.m);
            arrays_.exp_avg_sq.set(i, e.v);
            if (has_compensation) {
                arrays_.compensation.set(i, e.c);
            }
        }
    }
    void steps(int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
            step();
        }
    }
    [[nodiscard]] const ParamArrays& download() const { return arrays_; }

  private:
    ParamArrays arrays_;
    numerics::GroupHyper hyper_;
    int64_t steps_ = 0;
};

} // namespace mp::test
