// SPDX-License-Identifier: Apache-2.0
// Recipes with scaled states: the levels of MS-AMP, what is unsound, and the names of formats in keys.
#include <array>
#include <utility>

#include "optimizer_scaled.hpp"
#include "recipe/keys.hpp"

using namespace mp;
using namespace mp::test;

namespace {

std::string refusal(const recipe::Recipe& recipe) {
    try {
        recipe::check_recipe(recipe);
    } catch (const Error& error) {
        EXPECT_EQ(error.status().code(), Code::invalid_argument);
        return error.what();
    }
    return "";
}

TEST(ScaledRecipe, LevelsAreAllowed) {
    for (int32_t number = 1; number <= 3; ++number) {
        EXPECT_EQ(refusal(level(number)), "");
    }
}

TEST(ScaledRecipe, UnsoundCombinationsAreRefusedWithTheReason) {
    recipe::Recipe recipe = level(2);
    recipe.state(numerics::StateId::exp_avg_sq).format = FormatId::e4m3_scaled;
    EXPECT_NE(refusal(recipe).find("2.3e5"), std::string::npos);
    recipe = level(3);
    recipe.master = FormatId::none;
    EXPECT_NE(refusal(recipe).find("master"), std::string::npos);
    recipe.weight_rounding = recipe::RoundingMode::stochastic;
    EXPECT_EQ(refusal(recipe), "");
    recipe = level(2);
    recipe.state(numerics::StateId::exp_avg).format = FormatId::dynamic8;
    EXPECT_EQ(refusal(recipe), "");
    recipe.state(numerics::StateId::exp_avg).rounding = recipe::RoundingMode::stochastic;
    EXPECT_NE(refusal(recipe).find("nearest only"), std::string::npos);
    recipe = level(2);
    recipe.compensation = FormatId::fp16;
    EXPECT_NE(refusal(recipe).find("Kahan"), std::string::npos);
}

TEST(ScaledRecipe, FormatsHaveNamesInKeys) {
    recipe::Recipe recipe;
    constexpr std::array<std::pair<const char*, const char*>, 5> kValues = {
        {{"weight.dtype", "fp8_e4m3_scaled"},
         {"master.dtype", "fp16_scaled"},
         {"grad.dtype", "fp8_e5m2_scaled"},
         {"optimizer.exp_avg.dtype", "fp8_e4m3_scaled"},
         {"optimizer.exp_avg_sq.dtype", "fp16_scaled"}}};
    for (const auto& [key, value] : kValues) {
        recipe::set_key(recipe, recipe::find_key(key), value);
        EXPECT_EQ(recipe::key_text(recipe, recipe::find_key(key)), value);
    }
    EXPECT_EQ(recipe.weight, FormatId::e4m3_scaled);
    EXPECT_EQ(recipe.master, FormatId::fp16_scaled);
    EXPECT_EQ(recipe.grad, FormatId::e5m2_scaled);
    EXPECT_EQ(recipe.state(numerics::StateId::exp_avg).format, FormatId::e4m3_scaled);
    EXPECT_EQ(recipe.state(numerics::StateId::exp_avg_sq).format, FormatId::fp16_scaled);
    recipe::set_key(recipe, recipe::find_key("master.dtype"), "none");
    EXPECT_FALSE(recipe.master != FormatId::none);
    EXPECT_THROW(recipe::set_key(recipe, recipe::find_key("weight.dtype"), "fp8_e4m3"), Error);
}

// The lists of the keys are the table's rows.
TEST(ScaledRecipe, KeysOfferEveryFormatOfTheTable) {
    const auto expect_formats = [](const char* key, FormatRoles role) {
        AllFormats::for_each([&](auto format) {
            const FormatId one = decltype(format)::kFormat;
            // Gradients of others may come in scaled bf16; the library makes none.
            if ((format_roles(one) & role) != 0 && one != FormatId::bf16_scaled) {
                EXPECT_NO_THROW({
                    recipe::Recipe recipe;
                    recipe::set_key(recipe, recipe::find_key(key), format_name(one));
                }) << key
                   << " " << format_name(one);
            } else if (one != FormatId::bf16_scaled) {
                recipe::Recipe recipe;
                EXPECT_THROW(recipe::set_key(recipe, recipe::find_key(key), format_name(one)),
                             Error)
                    << key << " " << format_name(one);
            }
        });
    };
    expect_formats("weight.dtype", kForParam);
    expect_formats("grad.dtype", kForGrad);
    expect_formats("master.dtype", kForMaster);
    expect_formats("optimizer.exp_avg.dtype", kForState);
    expect_formats("optimizer.exp_avg_sq.dtype", kForState);
    expect_formats("optimizer.compensation.dtype", kForCompensation);
}

} // namespace
