// SPDX-License-Identifier: Apache-2.0
// What a recipe resolves for a layer: every preset, product and operand, rules by name, and what stays in high precision.
#include <gtest/gtest.h>

#include "recipe/keys.hpp"
#include "recipe/layer_policy.hpp"
#include "status/status.hpp"

using namespace mp;
using namespace mp::recipe;

namespace {

constexpr GemmRole kRoles[] = {GemmRole::fprop, GemmRole::dgrad, GemmRole::wgrad};
constexpr LayerSizes kSizes = {4096, 4096, false};

DType high_precision(const Recipe& recipe, GemmRole role) {
    return role == GemmRole::fprop   ? recipe.fprop
           : role == GemmRole::dgrad ? recipe.dgrad
                                     : recipe.wgrad;
}

std::string refusal(const LayerPolicy& policy, GemmRole role, Operand operand) {
    try {
        (void)policy.resolve(role, operand);
    } catch (const Error& error) {
        EXPECT_EQ(error.status().code(), Code::invalid_argument);
        return error.what();
    }
    return "";
}

} // namespace

// Scales lie along what a product sums over, so an operand has a format for each product.
TEST(LayerPolicy, ResolvesEveryOperandOfEveryPreset) {
    int quantized = 0;
    for (const Preset& preset : presets()) {
        const LayerPolicy policy(preset.recipe, "", kSizes);
        EXPECT_EQ(policy.is_fp8(), preset.recipe.fp8.is_used()) << preset.name;
        for (const GemmRole role : kRoles) {
            const ProductOperands operands = operands_of(role);
            for (const Operand operand : {operands.a, operands.b}) {
                const Format& format = policy.resolve(role, operand).format;
                EXPECT_FALSE(policy.resolve(role, operand).rounding.stochastic);
                const bool is_fp8 = recipe::is_fp8(preset.recipe.fp8, role);
                const Format expected = is_fp8
                                            ? operand_format(preset.recipe.fp8, role, operand)
                                            : Format{high_precision(preset.recipe, role), {}, {}};
                EXPECT_TRUE(format == expected) << preset.name << " " << role_name(role);
                quantized += format.is_quantized() ? 1 : 0;
            }
            EXPECT_TRUE(policy.resolve(role, operands.a).format == policy.a(role));
            EXPECT_TRUE(policy.resolve(role, operands.b).format == policy.b(role));
        }
    }
    EXPECT_GT(quantized, 30);
}

// One rounding of an operand in all products that take codes of it; its uid is that of its name.
TEST(LayerPolicy, ResolvesTheRoundingOfCodes) {
    Recipe recipe = find_preset("fp8_rowwise_gw_hp").recipe;
    recipe.fp8.rounding[static_cast<std::size_t>(Operand::grad_output)] = RoundingMode::stochastic;
    const LayerPolicy policy(recipe, "h0", kSizes), other(recipe, "h1", kSizes);
    const auto rounding = [](const LayerPolicy& of, GemmRole role, Operand operand) {
        return of.resolve(role, operand).rounding;
    };
    const auto dgrad = rounding(policy, GemmRole::dgrad, Operand::grad_output);
    EXPECT_TRUE(dgrad.stochastic && policy.rounds_stochastically());
    EXPECT_NE(dgrad.uid, rounding(other, GemmRole::dgrad, Operand::grad_output).uid);
    EXPECT_FALSE(rounding(policy, GemmRole::wgrad, Operand::grad_output).stochastic) << "in bf16";
    EXPECT_FALSE(rounding(policy, GemmRole::fprop, Operand::input).stochastic);
}

TEST(LayerPolicy, FirstIsTheProductThatTakesAnOperandFirst) {
    const LayerPolicy policy(find_preset("fp8_rowwise").recipe, "", kSizes);
    EXPECT_TRUE(policy.first(Operand::input) == policy.a(GemmRole::fprop));
    EXPECT_TRUE(policy.first(Operand::weight) == policy.b(GemmRole::fprop));
    EXPECT_TRUE(policy.first(Operand::grad_output) == policy.a(GemmRole::dgrad));
    EXPECT_FALSE(policy.a(GemmRole::dgrad) == policy.a(GemmRole::wgrad)); // rows and columns of dy
}

TEST(LayerPolicy, AnOperandThatAProductDoesNotHaveIsNamed) {
    const LayerPolicy policy(find_preset("fp32").recipe, "", kSizes);
    EXPECT_NE(refusal(policy, GemmRole::fprop, Operand::grad_output).find("grad_output"),
              std::string::npos);
    EXPECT_NE(refusal(policy, GemmRole::dgrad, Operand::input).find("dgrad"), std::string::npos);
    EXPECT_NE(refusal(policy, GemmRole::wgrad, Operand::weight).find("weight"), std::string::npos);
}

TEST(LayerPolicy, SizesAndPlacesStayInHighPrecisionWithTheReason) {
    Recipe recipe = find_preset("fp8_delayed").recipe;
    const LayerPolicy odd(recipe, "", {4096, 33, false});
    EXPECT_FALSE(odd.is_fp8());
    EXPECT_EQ(odd.fallback(), odd.high_precision_reason());
    EXPECT_NE(odd.fallback().find("4096 x 33"), std::string::npos);
    recipe.fp8.keep_first_and_last = true;
    const LayerPolicy last(recipe, "", {4096, 4096, true});
    EXPECT_FALSE(last.is_fp8());
    EXPECT_NE(last.high_precision_reason().find("last"), std::string::npos);
    EXPECT_EQ(last.fallback(), ""); // as the recipe means it
    EXPECT_EQ(LayerPolicy(find_preset("fp32").recipe, "", {5, 7, false}).fallback(), "");
}

TEST(LayerPolicy, RulesOfANameGoOverTheRecipe) {
    Recipe recipe = find_preset("fp8_rowwise").recipe;
    set_key(recipe, find_key("layers"),
            "lm_head; attn.*: gemm.scaling=tensorwise; experts.*: recipe=mxfp8");
    const LayerPolicy plain(recipe, "mlp.0", kSizes);
    const LayerPolicy head(recipe, "lm_head", kSizes);
    const LayerPolicy attention(recipe, "attn.3", kSizes);
    const LayerPolicy expert(recipe, "experts.1", kSizes);
    EXPECT_EQ(plain.rules(), "");
    EXPECT_EQ(head.rules(), "lm_head");
    EXPECT_FALSE(head.is_fp8());
    EXPECT_TRUE(plain.a(GemmRole::fprop).grid == kRowScales);
    EXPECT_TRUE(attention.a(GemmRole::fprop).grid == kTensorScale);
    EXPECT_TRUE(expert.a(GemmRole::fprop).grid == kMxRowScales);
    EXPECT_TRUE(expert.recipe().layers.empty());
}
