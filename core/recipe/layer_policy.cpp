// SPDX-License-Identifier: Apache-2.0
#include "recipe/layer_policy.hpp"

#include <algorithm>

#include "recipe/layer_rules.hpp"
#include "status/status.hpp"
#include "system/fnv.hpp"

namespace mp::recipe {
namespace {

// Of the codes of a layer's operand.
numerics::Rounding operand_rounding(const Fp8Policy& policy, Operand operand,
                                    const std::string& layer) {
    numerics::Rounding rounding;
    if (policy.rounds_stochastically(operand)) {
        system::Fnv64 hash;
        hash.add(layer + "." + operand_name(operand));
        rounding.stochastic = true;
        rounding.uid = hash.value();
    }
    return rounding;
}

std::string reason_against_fp8(const Fp8Policy& policy, const LayerSizes& sizes) {
    if (policy.is_used() && sizes.blocks != DType::none) {
        return std::string("its weight is ") + dtype_name(sizes.blocks) +
               ", which products decode to numbers";
    }
    return reason_for_high_precision(policy, sizes.in_features, sizes.out_features,
                                     sizes.is_first_or_last);
}

} // namespace

LayerPolicy::LayerPolicy(const Recipe& recipe, const std::string& name, const LayerSizes& sizes)
    : recipe_(for_layer(recipe, name)), rules_(fitting_patterns(recipe, name)), sizes_(sizes),
      high_precision_reason_(reason_against_fp8(recipe_.fp8, sizes)) {
    const DType high_precision[] = {recipe_.fprop, recipe_.dgrad, recipe_.wgrad};
    for (const GemmRole role : {GemmRole::fprop, GemmRole::dgrad, GemmRole::wgrad}) {
        const auto product = static_cast<std::size_t>(role);
        const ProductOperands operands = operands_of(role);
        const bool is_quantized = is_fp8() && recipe::is_fp8(recipe_.fp8, role);
        const auto choose = [&](Operand operand) {
            if (operand == Operand::weight && sizes.blocks != DType::none) {
                return OperandForm{{sizes.blocks, {}, {}}, {}};
            }
            return is_quantized ? OperandForm{operand_format(recipe_.fp8, role, operand),
                                              operand_rounding(recipe_.fp8, operand, name)}
                                : OperandForm{{high_precision[product], {}, {}}, {}};
        };
        forms_[product] = {choose(operands.a), choose(operands.b)};
    }
    if (rounds_stochastically() && name.empty()) {
        fail(Code::invalid_argument,
             "linear: the recipe rounds its operands stochastically (gemm.*.rounding), by random "
             "bits that follow from the layer's name, but it has none; set mp_linear_desc.name");
    }
}

bool LayerPolicy::rounds_stochastically() const noexcept {
    return std::any_of(forms_.begin(), forms_.end(), [](const Forms& forms) {
        return forms.a.rounding.stochastic || forms.b.rounding.stochastic;
    });
}

const OperandForm& LayerPolicy::resolve(GemmRole role, Operand operand) const {
    const ProductOperands operands = operands_of(role);
    if (operand != operands.a && operand != operands.b) {
        fail(Code::invalid_argument, "linear: %s multiplies %s by %s; %s is none of them",
             role_name(role), operand_name(operands.a), operand_name(operands.b),
             operand_name(operand));
    }
    return operand == operands.a ? of(role).a : of(role).b;
}

const Format& LayerPolicy::first(Operand operand) const noexcept {
    switch (operand) {
    case Operand::input:
        return a(GemmRole::fprop);
    case Operand::weight:
        return b(GemmRole::fprop);
    case Operand::grad_output:
        break;
    }
    return a(GemmRole::dgrad);
}

std::string LayerPolicy::fallback() const {
    const Fp8Policy& policy = recipe_.fp8;
    const bool fits = sizes_.in_features % policy.multiple_of == 0 &&
                      sizes_.out_features % policy.multiple_of == 0;
    return policy.is_used() && !is_fp8() && !fits && sizes_.blocks == DType::none
               ? high_precision_reason_
               : std::string();
}

} // namespace mp::recipe
