// SPDX-License-Identifier: Apache-2.0
// Formats of its own for a group's moments: what is kept in which type, and what is refused.
#include "optimizers.hpp"

using namespace mp_test;

namespace {

// A parameter of so many elements in a new group, whose first moment's state is asked for.
struct FormatOfGroup {
    Context context = make_context();
    Recipe recipe;
    Optimizer optimizer;
    std::vector<Tensor> params;

    explicit FormatOfGroup(const char* json)
        : recipe(recipe_of(context, json)), optimizer(make_optimizer(context, recipe)) {}
    int32_t add(const char* exp_avg, const char* exp_avg_sq, int64_t count) {
        mp_param_group_desc desc = MP_PARAM_GROUP_DESC_INIT;
        desc.beta2 = 0.95;
        desc.state_formats[0] = exp_avg;
        desc.state_formats[1] = exp_avg_sq;
        int32_t group = -1;
        EXPECT_TRUE(succeeded(mp_optimizer_add_group(optimizer, &desc, &group)));
        params.push_back(make_tensor(context, MP_DTYPE_BF16, {count}));
        const std::string name = 'p' + std::to_string(params.size());
        int32_t index = -1;
        EXPECT_TRUE(succeeded(
            add_param(optimizer, group, name.c_str(), params.back(), nullptr, nullptr, &index)));
        return index;
    }
    int32_t dtype(int32_t index, const char* state) {
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        EXPECT_TRUE(succeeded(mp_tensor_get_desc(state_of(optimizer, index, state), &desc)));
        return desc.dtype;
    }
};

constexpr const char* kInt8 = R"({"recipe": "bf16_pure", "optimizer.exp_avg.dtype": "int8_block256",
                                  "optimizer.exp_avg_sq.dtype": "int8_companded32"})";

} // namespace

// Embeddings keep fp32 moments beside a model whose others are 8-bit; all of them take the same step.
TEST(OptimizerFormats, AGroupKeepsItsMomentsInFormatsOfItsOwn) {
    FormatOfGroup run(kInt8);
    const int32_t common = run.add(nullptr, nullptr, 5000);
    const int32_t embedding = run.add("fp32", "fp32", 5000);
    const int32_t mixed = run.add("bf16", nullptr, 5000);
    EXPECT_EQ(run.dtype(common, "exp_avg"), MP_DTYPE_UINT8);
    EXPECT_EQ(run.dtype(common, "exp_avg_sq"), MP_DTYPE_UINT8);
    EXPECT_EQ(run.dtype(common, "exp_avg_sq_scale_inv"), MP_DTYPE_FP16);
    EXPECT_EQ(run.dtype(embedding, "exp_avg"), MP_DTYPE_FP32);
    EXPECT_EQ(run.dtype(embedding, "exp_avg_sq"), MP_DTYPE_FP32);
    EXPECT_EQ(run.dtype(mixed, "exp_avg"), MP_DTYPE_BF16);
    EXPECT_EQ(run.dtype(mixed, "exp_avg_sq"), MP_DTYPE_UINT8);
    MP_OK(mp_optimizer_step(run.optimizer, nullptr, nullptr));

    mp_param_group_desc wrong = MP_PARAM_GROUP_DESC_INIT;
    wrong.state_formats[0] = "int9";
    int32_t group = -1;
    MP_FAILS(mp_optimizer_add_group(run.optimizer, &wrong, &group), MP_STATUS_INVALID_ARGUMENT,
             "int9");
    mp_param_group_desc lion = MP_PARAM_GROUP_DESC_INIT;
    lion.rule = MP_RULE_LION;
    lion.state_formats[0] = "bf16";
    MP_OK(mp_optimizer_add_group(run.optimizer, &lion, &group));
    lion.state_formats[1] = "bf16"; // which it does not have
    MP_FAILS(mp_optimizer_add_group(run.optimizer, &lion, &group), MP_STATUS_INVALID_ARGUMENT,
             "lion keeps 1 state(s)");
}

// Where a group keeps fp32, nothing is rounded: the recipe's stochastic rounding is for the others.
TEST(OptimizerFormats, FormatsAreCheckedWithTheRecipesRoundings) {
    FormatOfGroup run("{\"recipe\": \"bf16_pure_sr\"}");
    const int32_t index = run.add("fp32", "fp32", 64);
    EXPECT_EQ(run.dtype(index, "exp_avg_sq"), MP_DTYPE_FP32);
    mp_param_group_desc wrong = MP_PARAM_GROUP_DESC_INIT;
    wrong.beta2 = 0.95;
    wrong.state_formats[1] =
        "int8_block256"; // rounded to nearest only, and the recipe asks for more
    int32_t group = -1;
    MP_FAILS(mp_optimizer_add_group(run.optimizer, &wrong, &group), MP_STATUS_INVALID_ARGUMENT,
             "stochastic");
    wrong.state_formats[1] = "fp8_e4m3_scaled"; // does not train
    MP_FAILS(mp_optimizer_add_group(run.optimizer, &wrong, &group), MP_STATUS_INVALID_ARGUMENT,
             "2.3e5");
}

TEST(OptimizerFormats, SmallTensorsKeepFp32BelowTheRecipesThreshold) {
    FormatOfGroup usual(kInt8);
    EXPECT_EQ(usual.dtype(usual.add(nullptr, nullptr, 4095), "exp_avg"), MP_DTYPE_FP32);
    EXPECT_EQ(usual.dtype(usual.add(nullptr, nullptr, 4096), "exp_avg"), MP_DTYPE_UINT8);
    FormatOfGroup all(R"({"recipe": "bf16_pure", "optimizer.exp_avg.dtype": "int8_block256",
                          "optimizer.block_min_elements": 0})");
    EXPECT_EQ(all.dtype(all.add(nullptr, nullptr, 1), "exp_avg"), MP_DTYPE_UINT8);
    FormatOfGroup few(R"({"recipe": "bf16_pure", "optimizer.exp_avg.dtype": "int8_block256",
                          "optimizer.block_min_elements": 100000})");
    EXPECT_EQ(few.dtype(few.add(nullptr, nullptr, 99999), "exp_avg"), MP_DTYPE_FP32);
    EXPECT_EQ(few.dtype(few.add(nullptr, nullptr, 100000), "exp_avg"), MP_DTYPE_UINT8);
}
