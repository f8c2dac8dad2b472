// SPDX-License-Identifier: Apache-2.0
// What the two ways to step have in common: structs of step.h and optimizer.h, as core has them.
#pragma once

#include <algorithm>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "boundary.hpp"
#include "objects.hpp"
#include "rule_number.hpp"
#include "versioned_struct.hpp"

namespace mp::capi {

inline constexpr uint32_t kStepFlags = MP_OPTIMIZER_CHECK_FINITE | MP_OPTIMIZER_ZERO_GRAD;

inline optim::OptimizerOptions options_of(const mp_optimizer_desc* desc) {
    const auto source = read_optional_struct(desc, "desc");
    check_flags(source.flags,
                kStepFlags | MP_OPTIMIZER_OFFLOAD | MP_OPTIMIZER_GRADS_GIVEN |
                    MP_OPTIMIZER_OFFLOAD_GRADS,
                "desc.flags");
    optim::OptimizerOptions options;
    options.seed = source.seed;
    options.max_grad_norm = source.max_grad_norm;
    options.check_finite = (source.flags & MP_OPTIMIZER_CHECK_FINITE) != 0;
    options.zero_grad = (source.flags & MP_OPTIMIZER_ZERO_GRAD) != 0;
    options.offload = (source.flags & MP_OPTIMIZER_OFFLOAD) != 0;
    options.offload_grads = (source.flags & MP_OPTIMIZER_OFFLOAD_GRADS) != 0;
    options.grads_given = (source.flags & MP_OPTIMIZER_GRADS_GIVEN) != 0;
    return options;
}

// Names of formats by state; NULL is the recipe's.
inline optim::FormatsOfGroup formats_of(const char* const (&names)[MP_MAX_RULE_STATES]) {
    optim::FormatsOfGroup formats;
    for (std::size_t k = 0; k < formats.size(); ++k) {
        formats[k] = names[k] != nullptr ? names[k] : "";
    }
    return formats;
}

inline constexpr uint32_t kRuleFlags = MP_RULE_MAXIMIZE | MP_RULE_NO_BIAS_CORRECTION;

template <typename T> std::span<const mp_hyper> hypers_of(const T& source) {
    return list_of(source.hypers, source.hyper_count, "hypers", "hyper_count");
}

// Hyperparameters by name, literally: in place of zeros. A zero by name gives way to a member that is none: who reads a
// group or arguments, and sets a member, need not look for the name.
inline void set_hypers(std::span<const mp_hyper> named, const numerics::GroupHyper& members,
                       numerics::GroupHyper& hyper) {
    const numerics::RuleInfo rule = numerics::rule_info(hyper.rule);
    for (const mp_hyper& one : named) {
        const numerics::HyperSpec* const spec =
            numerics::find_hyper(rule, required(one.name, "hypers.name"));
        if (spec == nullptr) {
            fail(Code::unknown_name, "hypers has %.60s, which %s does not read; it reads %s",
                 one.name, rule.name, numerics::hyper_names(rule).c_str());
        }
        const auto is_same = [&](const mp_hyper& other) {
            return std::string_view(other.name) == one.name;
        };
        const bool has_member = members.*spec->value != 0.0;
        if ((has_member && one.value != 0.0) || std::any_of(&named.front(), &one, is_same)) {
            fail(Code::invalid_argument,
                 "hypers has %.60s, which is given already; leave its member 0, or name it once",
                 one.name);
        }
        hyper.*spec->value = has_member ? members.*spec->value : one.value;
    }
}

// What groups and steps on pointers spell alike. Zero means what is usual, but by name, and of a step's lr.
template <typename T> numerics::GroupHyper hyper_of(const T& source) {
    numerics::GroupHyper hyper{source.lr, source.beta1, source.beta2, source.eps,
                               source.weight_decay};
    const numerics::GroupHyper members = hyper;
    hyper.rule = rule_of(source.rule);
    const numerics::GroupHyper usual = numerics::usual_hyper(hyper.rule);
    for (const numerics::HyperName& each : numerics::kHyperNames) {
        double& value = hyper.*each.value;
        const bool is_literal =
            std::is_same_v<T, mp_step_args> && each.value == &numerics::GroupHyper::lr;
        value = value == 0.0 && !is_literal ? usual.*each.value : value;
    }
    set_hypers(hypers_of(source), members, hyper);
    hyper.maximize = (source.flags & MP_RULE_MAXIMIZE) != 0;
    hyper.bias_correction = (source.flags & MP_RULE_NO_BIAS_CORRECTION) == 0;
    return hyper;
}

// Zeros that are meant, by name: a member of 0 would say what is usual.
inline std::vector<mp_hyper> meant_zeros(const numerics::GroupHyper& hyper) {
    const numerics::RuleInfo rule = numerics::rule_info(hyper.rule);
    std::vector<mp_hyper> named;
    for (int i = 0; i < rule.hyper_count; ++i) {
        const numerics::HyperSpec& spec = rule.hypers[i];
        if (hyper.*spec.value == 0.0 && spec.usual != 0.0) {
            named.push_back({numerics::hyper_name(spec.value), 0.0});
        }
    }
    return named;
}

// The same list, with names that last.
inline std::vector<mp_hyper> kept_hypers(std::span<const mp_hyper> given, numerics::RuleId rule) {
    std::vector<mp_hyper> kept;
    for (const mp_hyper& one : given) {
        const numerics::HyperSpec* const spec =
            numerics::find_hyper(numerics::rule_info(rule), std::string_view(one.name));
        kept.push_back({numerics::hyper_name(spec->value), one.value});
    }
    return kept;
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
