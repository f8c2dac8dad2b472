// SPDX-License-Identifier: Apache-2.0
#include "linear/advice.hpp"

#include <cstdio>

namespace mp::linear {
namespace {

// Above these shares something is worth saying. One in 10^5 is FP8-LM's own bound for saturation; small values
// become zero in any format, so only a large share of them counts.
constexpr double kSaturated = 1e-5;
constexpr double kUnderflowed = 0.05;

std::string percent(double share) {
    char text[32];
    (void)std::snprintf(text, sizeof(text), "%.3g %%", 100.0 * share);
    return text;
}

std::string on_saturation(const recipe::Fp8Policy& policy) {
    if (policy.scaling == recipe::Fp8Scaling::delayed) {
        if (policy.amax_algo == numerics::AmaxAlgo::most_recent) {
            return "set gemm.amax_compute_algo to max, or raise gemm.margin";
        }
        return policy.margin == 0 ? "raise gemm.margin, or set gemm.scaling to tensorwise"
                                  : "raise gemm.margin further, or set gemm.scaling to tensorwise";
    }
    return policy.rule == numerics::ScaleRule::mx_floor ||
                   policy.rule == numerics::ScaleRule::mx_even
               ? "set gemm.scale_rule to mx_rceil"
               : "raise gemm.margin";
}

std::string on_underflow(const recipe::Fp8Policy& policy, recipe::Operand operand) {
    if (policy.margin > 0) {
        return "lower gemm.margin";
    }
    if (operand == recipe::Operand::grad_output && policy.format == recipe::Fp8Format::e4m3 &&
        policy.scaling != recipe::Fp8Scaling::mx && policy.scaling != recipe::Fp8Scaling::block) {
        return "set fp8.format to hybrid";
    }
    return "set gemm.scaling to block or mx, so that small values have scales of their own";
}

} // namespace

std::string advice_for(const recipe::Fp8Policy& policy, recipe::Operand operand,
                       const numerics::QuantStats& stats) {
    if (stats.elements == 0) {
        return {};
    }
    const auto elements = static_cast<double>(stats.elements);
    const std::string name = recipe::operand_name(operand);
    if (stats.non_finite > 0) {
        return name + ": " + std::to_string(stats.non_finite) +
               " elements are not finite: lower the learning rate, or the loss scale "
               "(scaler.init_scale)";
    }
    const double saturated = static_cast<double>(stats.saturated) / elements;
    if (saturated > kSaturated) {
        return name + ": " + percent(saturated) + " saturated: " + on_saturation(policy);
    }
    const double underflowed = static_cast<double>(stats.underflowed) / elements;
    if (underflowed > kUnderflowed) {
        return name + ": " + percent(underflowed) +
               " became zero: " + on_underflow(policy, operand);
    }
    return {};
}

} // namespace mp::linear
