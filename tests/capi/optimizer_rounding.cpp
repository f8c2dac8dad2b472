// SPDX-License-Identifier: Apache-2.0
// What rounding takes from weights, and what masters, Kahan's compensation and stochastic rounding keep of it.
#include <cmath>

#include "optimizers.hpp"

using namespace mp_test;

TEST(OptimizerRounding, MasterAndCompensationReceiveWhatRoundingLost) {
    const std::vector<float> init = numbers(1000, 9);
    for (const char* name : {"bf16_mixed_dual", "bf16_pure_kahan", "fp16_mixed"}) {
        const Context context = make_context();
        const Recipe recipe = make_recipe(context, name);
        const Optimizer optimizer = make_optimizer(context, recipe, MP_OPTIMIZER_DESC_INIT);
        add_group(optimizer);
        const Tensor exact = make_tensor(context, MP_DTYPE_FP32, {1000}, init);
        const Tensor param = make_tensor(context, weight_dtype(recipe), {1000});
        MP_OK(add_param(optimizer, 0, "p", param, nullptr, exact));
        EXPECT_EQ(bytes_of(param),
                  bytes_of(make_tensor(context, weight_dtype(recipe), {1000}, init)));
        const auto p = values_of(context, param);
        if (std::string(name) == "bf16_pure_kahan") {
            const auto c = values_of(context, state_of(optimizer, 0, "compensation"));
            for (std::size_t i = 0; i < 1000; ++i) { // 8 + 8 significant bits
                ASSERT_NEAR(p[i] + c[i], init[i], std::fabs(init[i]) * 0x1p-16) << i;
            }
        } else {
            EXPECT_EQ(values_of(context, state_of(optimizer, 0, "master")), init);
        }
    }
}

// Ten thousand tiny steps: what each recipe really applies of an update that bf16 alone cannot hold.
TEST(OptimizerRounding, SmallLearningRateNeedsKahanOrStochasticRoundingOrAMaster) {
    const auto mean_after = [](const char* name, const char* state) {
        constexpr std::size_t kCount = 512;
        const Context context = make_context();
        const Recipe recipe = make_recipe(context, name);
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.seed = 5;
        const Optimizer optimizer = make_optimizer(context, recipe, desc);
        add_group(optimizer, 1e-5, 0.0);
        const Tensor param =
            make_tensor(context, weight_dtype(recipe), {kCount}, std::vector<float>(kCount, 1.0F));
        EXPECT_TRUE(succeeded(add_param(optimizer, 0, "gain", param, nullptr, nullptr)));
        const Tensor ones =
            make_tensor(context, MP_DTYPE_FP32, {kCount}, std::vector<float>(kCount, 1.0F));
        const Tensor grad = state_of(optimizer, 0, "grad");
        round_into(ones, grad);
        for (int step = 0; step < 4000; ++step) {
            EXPECT_TRUE(succeeded(mp_optimizer_step(optimizer, nullptr, nullptr)));
        }
        double mean = 0;
        for (const float value : values_of(context, state_of(optimizer, 0, state))) {
            mean += static_cast<double>(value) / kCount;
        }
        return mean;
    };
    const double exact = 1.0 - 4000 * 1e-5; // |m / sqrt(v)| is 1 for a constant gradient
    EXPECT_NEAR(mean_after("fp32", "param"), exact, 1e-4);
    EXPECT_EQ(mean_after("bf16_pure", "param"), 1.0); // not one step arrives
    EXPECT_NEAR(mean_after("bf16_mixed_dual", "master"), exact, 1e-4);
    EXPECT_NEAR(mean_after("bf16_mixed_dual", "param"), exact, 0x1p-9);
    // bf16 moments make each step a few percent off; what counts is that the steps arrive.
    EXPECT_NEAR(mean_after("bf16_pure_sr", "param"), exact, 0.1 * (1.0 - exact));
}

TEST(OptimizerRounding, KahanAppliesWhatPlainBf16Loses) {
    for (const char* format :
         {"bf16", "fp8_e4m3_block256", "fp8_e4m3_block128", "int8_block256", "int8_companded32"}) {
        SCOPED_TRACE(format);
        const Context context = make_context();
        const std::string json = R"({"recipe": "bf16_pure_kahan", "optimizer.block_min_elements": 0,
                                     "optimizer.compensation.dtype": ")" +
                                 std::string(format) + "\"}";
        const Recipe recipe = recipe_of(context, json);
        const Optimizer optimizer = make_optimizer(context, recipe, MP_OPTIMIZER_DESC_INIT);
        add_group(optimizer, 1e-4, 0.0);
        const Tensor param =
            make_tensor(context, MP_DTYPE_BF16, {64}, std::vector<float>(64, 1.0F));
        const Tensor grad = make_tensor(context, MP_DTYPE_BF16, {64}, std::vector<float>(64, 1.0F));
        MP_OK(add_param(optimizer, 0, "gain", param, grad, nullptr));
        for (int step = 0; step < 1000; ++step) {
            MP_OK(mp_optimizer_step(optimizer, nullptr, nullptr));
        }
        const double p = values_of(context, param)[0];
        const Tensor lost = make_tensor(context, MP_DTYPE_FP32, {64});
        MP_OK(mp_optimizer_read_state(optimizer, nullptr, 0, "compensation", lost));
        const double c = values_of(context, lost)[0];
        EXPECT_NEAR(p + c, 0.9, 0.01); // plain bf16 stays at 1
    }
}
