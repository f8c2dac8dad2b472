// SPDX-License-Identifier: Apache-2.0
#include "recipe/fp8_policy.hpp"

namespace mp::recipe {
namespace {

DType code_type(const Fp8Policy& policy, Operand operand) {
    switch (policy.format) {
    case Fp8Format::e4m3:
        return DType::fp8_e4m3;
    case Fp8Format::e5m2:
        return DType::fp8_e5m2;
    case Fp8Format::hybrid:
        break;
    }
    return operand == Operand::grad_output ? DType::fp8_e5m2 : DType::fp8_e4m3;
}

// Whether the product sums over the columns of the operand as it is stored: x [rows, in], w [out, in],
// dy [rows, out].
bool sums_over_columns(GemmRole role, Operand operand) {
    switch (role) {
    case GemmRole::fprop: // x w^T over in
        return true;
    case GemmRole::dgrad: // dy w over out
        return operand == Operand::grad_output;
    case GemmRole::wgrad: // dy^T x over rows
        break;
    }
    return false;
}

ScaleGrid grid_of(const Fp8Policy& policy, GemmRole role, Operand operand) {
    const bool along_row = sums_over_columns(role, operand);
    switch (policy.scaling) {
    case Fp8Scaling::rowwise_gw_hp:
        // torchao keeps one scale for the weight of the data gradient: its copy is then a cast, no second one.
        if (role == GemmRole::dgrad && operand == Operand::weight) {
            return kTensorScale;
        }
        return along_row ? kRowScales : kColumnScales;
    case Fp8Scaling::rowwise:
        return along_row ? kRowScales : kColumnScales;
    case Fp8Scaling::block:
        if (operand == Operand::weight) {
            return kSquareBlockScales;
        }
        return along_row ? kRowBlockScales : kColumnBlockScales;
    case Fp8Scaling::mx:
        return along_row ? kMxRowScales : kMxColumnScales;
    case Fp8Scaling::none:
    case Fp8Scaling::delayed:
    case Fp8Scaling::tensorwise:
        break;
    }
    return kTensorScale;
}

// torchao's thresholds, measured on an H100: below them the casts cost more than the product wins.
bool is_too_small(const Fp8Policy& policy, int64_t in, int64_t out) {
    if (policy.scaling == Fp8Scaling::rowwise) {
        return out <= 2048 || in <= 1024 || (out <= 4096 && in <= 2048);
    }
    if (policy.scaling == Fp8Scaling::tensorwise || policy.scaling == Fp8Scaling::delayed) {
        return in <= 4096 && out <= 1024;
    }
    return false;
}

} // namespace

const char* role_name(GemmRole role) noexcept {
    constexpr const char* kNames[] = {"fprop", "dgrad", "wgrad"};
    return kNames[static_cast<int>(role)];
}

const char* operand_name(Operand operand) noexcept {
    constexpr const char* kNames[] = {"input", "weight", "grad_output"};
    return kNames[static_cast<int>(operand)];
}

ProductOperands operands_of(GemmRole role) noexcept {
    switch (role) {
    case GemmRole::fprop:
        return {Operand::input, Operand::weight};
    case GemmRole::dgrad:
        return {Operand::grad_output, Operand::weight};
    case GemmRole::wgrad:
        break;
    }
    return {Operand::grad_output, Operand::input};
}

bool has_one_scale(const Fp8Policy& policy) noexcept {
    return policy.scaling == Fp8Scaling::delayed || policy.scaling == Fp8Scaling::tensorwise;
}

bool is_fp8(const Fp8Policy& policy, GemmRole role) noexcept {
    if (!policy.is_used()) {
        return false;
    }
    switch (role) {
    case GemmRole::fprop:
        return policy.fprop;
    case GemmRole::dgrad:
        return policy.dgrad;
    case GemmRole::wgrad:
        break;
    }
    return policy.wgrad && policy.scaling != Fp8Scaling::rowwise_gw_hp;
}

bool has_codes(const Fp8Policy& policy, Operand operand) noexcept {
    for (const GemmRole role : {GemmRole::fprop, GemmRole::dgrad, GemmRole::wgrad}) {
        const ProductOperands operands = operands_of(role);
        if (is_fp8(policy, role) && (operands.a == operand || operands.b == operand)) {
            return true;
        }
    }
    return false;
}

Format operand_format(const Fp8Policy& policy, GemmRole role, Operand operand) noexcept {
    Format format{};
    format.dtype = code_type(policy, operand);
    format.grid = grid_of(policy, role, operand);
    format.policy = numerics::scale_policy(policy.rule, format.dtype, policy.margin);
    format.policy.power_of_two = policy.power_of_two;
    format.policy.epsilon = static_cast<float>(policy.amax_epsilon);
    return format;
}

numerics::DelayedRule delayed_rule(const Fp8Policy& policy, Operand operand) noexcept {
    numerics::DelayedRule rule{};
    rule.history_len = policy.amax_history_len;
    rule.algo = policy.amax_algo;
    rule.interval = policy.interval;
    rule.warm_up = policy.warm_up;
    rule.policy = operand_format(policy, GemmRole::fprop, operand).policy;
    if (policy.rule == numerics::ScaleRule::msamp) {
        rule.non_finite = numerics::NonFiniteAmax::restart;
        rule.rolls_on_zero = true;
    }
    return rule;
}

std::string reason_for_high_precision(const Fp8Policy& policy, int64_t in_features,
                                      int64_t out_features, bool is_first_or_last) {
    const auto sizes = [&] {
        return std::to_string(in_features) + " x " + std::to_string(out_features);
    };
    if (!policy.is_used()) {
        return "the recipe has no fp8 product";
    }
    if (is_first_or_last && policy.keep_first_and_last) {
        return "it is the first or the last layer (gemm.filter.first_last)";
    }
    if (in_features % policy.multiple_of != 0 || out_features % policy.multiple_of != 0) {
        return sizes() + " are not multiples of " + std::to_string(policy.multiple_of) +
               " (gemm.filter.multiple_of)";
    }
    if (policy.size_filter == SizeFilter::automatic &&
        is_too_small(policy, in_features, out_features)) {
        return sizes() + " are too small to gain (gemm.filter.size)";
    }
    return {};
}

} // namespace mp::recipe
