// SPDX-License-Identifier: Apache-2.0
// What the two ways to step have in common: structs of optimizer.h, as core has them.
#pragma once

#include "boundary.hpp"
#include "objects.hpp"
#include "rule_number.hpp"
#include "versioned_struct.hpp"

namespace mp::capi {

inline constexpr uint32_t kStepFlags = MP_OPTIMIZER_CHECK_FINITE | MP_OPTIMIZER_ZERO_GRAD;

inline optim::OptimizerOptions options_of(const mp_optimizer_desc* desc) {
    const auto source = read_optional_struct(desc, "desc");
    check_flags(source.flags, kStepFlags | MP_OPTIMIZER_OFFLOAD, "desc.flags");
    optim::OptimizerOptions options;
    options.seed = source.seed;
    options.max_grad_norm = source.max_grad_norm;
    options.check_finite = (source.flags & MP_OPTIMIZER_CHECK_FINITE) != 0;
    options.zero_grad = (source.flags & MP_OPTIMIZER_ZERO_GRAD) != 0;
    options.offload = (source.flags & MP_OPTIMIZER_OFFLOAD) != 0;
    return options;
}

inline constexpr uint32_t kRuleFlags = MP_RULE_MAXIMIZE | MP_RULE_NO_BIAS_CORRECTION;

// The five hyperparameters, which groups and pointer steps spell alike. Zero means default unless explicit.
template <typename T> numerics::GroupHyper hyper_of(const T& source) {
    numerics::GroupHyper hyper{source.lr, source.beta1, source.beta2, source.eps,
                               source.weight_decay};
    hyper.rule = rule_of(source.rule);
    check_reserved(source.reserved);
    if ((source.flags & MP_HYPERPARAMETERS_EXPLICIT) == 0) {
        const numerics::GroupHyper usual = numerics::usual_hyper(hyper.rule);
        for (const numerics::HyperName& each : numerics::kHyperNames) {
            double& value = hyper.*each.value;
            value = value == 0.0 ? usual.*each.value : value;
        }
    }
    hyper.maximize = (source.flags & MP_RULE_MAXIMIZE) != 0;
    hyper.bias_correction = (source.flags & MP_RULE_NO_BIAS_CORRECTION) == 0;
    return hyper;
}

inline void write_stats(const numerics::OptimizerState& state, mp_optimizer_stats* destination) {
    mp_optimizer_stats stats{};
    stats.found_inf = state.found_inf != 0.0F ? 1 : 0;
    stats.step = state.step;
    stats.skipped_steps = state.skipped_steps;
    stats.grad_norm = state.grad_norm;
    stats.grad_mul = state.grad_mul;
    stats.outlier_steps = state.outlier_steps;
    stats.grad_norm_z = state.z[static_cast<int>(numerics::Watched::grad_norm)];
    stats.loss_z = state.z[static_cast<int>(numerics::Watched::loss)];
    write_struct(destination, stats, "stats");
}

inline scaler::LossScaler* scaler_of(mp_scaler* scaler, const Context& context) {
    if (scaler == nullptr) {
        return nullptr;
    }
    scaler::LossScaler& object = *object_of(scaler, "scaler");
    if (&object.context()->stream().device() != &context.stream().device()) {
        fail(Code::invalid_argument, "scaler was made on another device than the parameters");
    }
    return &object;
}

} // namespace mp::capi
