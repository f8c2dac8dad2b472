// SPDX-License-Identifier: Apache-2.0
// What was set or loaded can be read.
#include <cmath>
#include <cstring>
#include <limits>

#include "support.hpp"

using namespace mp_test;

namespace {

mp_param_group_desc group_of(mp_optimizer* optimizer, int32_t group) {
    mp_param_group_desc desc = MP_PARAM_GROUP_DESC_INIT;
    EXPECT_TRUE(succeeded(mp_optimizer_get_group(optimizer, group, &desc)));
    return desc;
}

void expect_same(const mp_param_group_desc& a, const mp_param_group_desc& b) {
    EXPECT_EQ(a.flags, b.flags);
    EXPECT_EQ(a.lr, b.lr);
    EXPECT_EQ(a.beta1, b.beta1);
    EXPECT_EQ(a.beta2, b.beta2);
    EXPECT_EQ(a.eps, b.eps);
    EXPECT_EQ(a.weight_decay, b.weight_decay);
    EXPECT_EQ(a.rule, b.rule);
    EXPECT_STREQ(a.state_formats[0], b.state_formats[0]);
    EXPECT_STREQ(a.state_formats[1], b.state_formats[1]);
}

TEST(Getters, OfAnOptimizer) {
    const Context context = make_context();
    const Recipe recipe = make_recipe(context, "bf16_mixed");
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    desc.flags = MP_OPTIMIZER_CHECK_FINITE | MP_OPTIMIZER_ZERO_GRAD;
    desc.seed = 77;
    desc.max_grad_norm = 1.5;
    const Optimizer optimizer = make_optimizer(context, recipe, desc);
    mp_optimizer_desc found = MP_OPTIMIZER_DESC_INIT;
    MP_OK(mp_optimizer_get_desc(optimizer, &found));
    EXPECT_EQ(std::memcmp(&found, &desc, sizeof desc), 0);
}

TEST(Getters, TheNormCanChangeBetweenSteps) {
    const Context context = make_context();
    const Recipe recipe = make_recipe(context, "fp32");
    const Optimizer optimizer = make_optimizer(context, recipe, MP_OPTIMIZER_DESC_INIT);
    int32_t group = -1;
    MP_OK(mp_optimizer_add_group(optimizer, nullptr, &group));
    const Tensor weight = make_tensor(context, MP_DTYPE_FP32, {4}, numbers(4, 1));
    const Tensor grad = make_tensor(context, MP_DTYPE_FP32, {4}, {3.0F, 4.0F, 0.0F, 0.0F});
    mp_param_desc param = MP_PARAM_DESC_INIT;
    param.name = "w";
    param.param = weight;
    param.grad = grad;
    MP_OK(mp_optimizer_add_param(optimizer, 0, &param, nullptr));
    mp_optimizer_stats stats = MP_OPTIMIZER_STATS_INIT;
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    for (const double norm : {0.0, 0.5, 50.0}) {
        MP_OK(mp_optimizer_set_max_grad_norm(optimizer, norm));
        MP_OK(mp_optimizer_get_desc(optimizer, &desc));
        EXPECT_EQ(desc.max_grad_norm, norm);
        MP_OK(mp_optimizer_step(optimizer, nullptr, nullptr));
        MP_OK(mp_optimizer_get_stats(optimizer, nullptr, &stats));
        EXPECT_NEAR(stats.grad_mul, norm == 0.5 ? 0.1 : 1.0, 1e-6) << norm;
    }
    for (const double norm : {-1.0, 1e31, std::numeric_limits<double>::quiet_NaN()}) {
        MP_FAILS(mp_optimizer_set_max_grad_norm(optimizer, norm), MP_STATUS_INVALID_ARGUMENT,
                 "max_grad_norm");
    }
    MP_OK(mp_optimizer_get_desc(optimizer, &desc));
    EXPECT_EQ(desc.max_grad_norm, 50.0);
}

TEST(Getters, OfGroupsAsTheyAreNow) {
    const Context context = make_context();
    const Recipe recipe = make_recipe(context, "fp32");
    const Optimizer optimizer = make_optimizer(context, recipe, MP_OPTIMIZER_DESC_INIT);
    mp_param_group_desc adamw = MP_PARAM_GROUP_DESC_INIT;
    adamw.lr = 3e-4;
    adamw.beta2 = 0.95;
    const mp_hyper no_eps = {"eps", 0.0};
    adamw.hypers = &no_eps;
    adamw.hyper_count = 1;
    adamw.weight_decay = 0.1;
    adamw.flags |= MP_RULE_MAXIMIZE;
    adamw.state_formats[0] = "bf16";
    mp_param_group_desc lion{};
    lion.struct_size = sizeof lion;
    lion.rule = MP_RULE_LION;
    int32_t index = -1;
    MP_OK(mp_optimizer_add_group(optimizer, &adamw, &index));
    MP_OK(mp_optimizer_add_group(optimizer, &lion, &index));
    int32_t count = 0;
    MP_OK(mp_optimizer_get_group_count(optimizer, &count));
    EXPECT_EQ(count, 2);
    adamw.state_formats[1] = "fp32"; // the recipe's
    adamw.beta1 = 0.9;               // the rule's
    expect_same(group_of(optimizer, 0), adamw);
    EXPECT_EQ(group_of(optimizer, 1).rule, MP_RULE_LION);
    EXPECT_EQ(group_of(optimizer, 1).lr, 1e-4); // its own default
    EXPECT_EQ(group_of(optimizer, 1).beta2, 0.99);
    MP_OK(mp_optimizer_set_lr(optimizer, 0, 0.25));
    EXPECT_EQ(group_of(optimizer, 0).lr, 0.25);
    // Groups made of what was read are alike.
    for (int32_t group = 0; group < 2; ++group) {
        const mp_param_group_desc read = group_of(optimizer, group);
        MP_OK(mp_optimizer_add_group(optimizer, &read, &index));
        expect_same(group_of(optimizer, index), read);
    }
    int32_t enabled = -1;
    MP_OK(mp_optimizer_get_enabled(optimizer, 1, &enabled));
    EXPECT_EQ(enabled, 1);
    MP_OK(mp_optimizer_set_enabled(optimizer, 1, 0));
    MP_OK(mp_optimizer_get_enabled(optimizer, 1, &enabled));
    EXPECT_EQ(enabled, 0);
    mp_param_group_desc desc = MP_PARAM_GROUP_DESC_INIT;
    MP_FAILS(mp_optimizer_get_group(optimizer, 4, &desc), MP_STATUS_INVALID_ARGUMENT, "group");
    MP_FAILS(mp_optimizer_get_group(optimizer, -1, &desc), MP_STATUS_INVALID_ARGUMENT, "group");
    MP_FAILS(mp_optimizer_get_enabled(optimizer, -1, &enabled), MP_STATUS_INVALID_ARGUMENT,
             "group");
    MP_FAILS(mp_optimizer_get_enabled(optimizer, 0, nullptr), MP_STATUS_NULL_ARGUMENT, "enabled");
    MP_FAILS(mp_optimizer_get_group_count(optimizer, nullptr), MP_STATUS_NULL_ARGUMENT, "count");
}

TEST(Getters, OfParameters) {
    const Context context = make_context();
    const Recipe recipe = make_recipe(context, "fp32");
    const Optimizer optimizer = make_optimizer(context, recipe, MP_OPTIMIZER_DESC_INIT);
    const Tensor weight = make_tensor(context, MP_DTYPE_FP32, {8}, numbers(8, 1));
    int32_t group = -1;
    for (int i = 0; i < 2; ++i) {
        MP_OK(mp_optimizer_add_group(optimizer, nullptr, &group));
    }
    mp_param_desc param = MP_PARAM_DESC_INIT;
    param.name = "layers.0.weight";
    param.param = weight;
    MP_OK(mp_optimizer_add_param(optimizer, group, &param, nullptr));
    char name[32] = "";
    size_t needed = 0;
    MP_OK(mp_optimizer_get_param_name(optimizer, 0, name, sizeof name, &needed));
    EXPECT_STREQ(name, param.name);
    EXPECT_EQ(needed, std::strlen(param.name) + 1);
    group = -1;
    MP_OK(mp_optimizer_get_param_group(optimizer, 0, &group));
    EXPECT_EQ(group, 1);
    MP_FAILS(mp_optimizer_get_param_group(optimizer, 1, &group), MP_STATUS_INVALID_ARGUMENT, "1");
    MP_FAILS(mp_optimizer_get_param_name(optimizer, -1, name, sizeof name, nullptr),
             MP_STATUS_INVALID_ARGUMENT, "-1");
}

TEST(Getters, OfRecipesAndTheirClones) {
    const Context context = make_context();
    const Recipe recipe = make_recipe(context, "bf16_mixed");
    int32_t frozen = -1;
    MP_OK(mp_recipe_get_frozen(recipe, &frozen));
    EXPECT_EQ(frozen, 0);
    const Optimizer optimizer = make_optimizer(context, recipe, MP_OPTIMIZER_DESC_INIT);
    MP_OK(mp_recipe_get_frozen(recipe, &frozen));
    EXPECT_EQ(frozen, 1);
    MP_FAILS(mp_recipe_set_string(recipe, "grad.dtype", "bf16"), MP_STATUS_BAD_STATE, "in use");
    mp_recipe* raw = nullptr;
    MP_OK(mp_recipe_clone(recipe, &raw));
    const Recipe clone(raw);
    MP_OK(mp_recipe_get_frozen(clone, &frozen));
    EXPECT_EQ(frozen, 0);
    MP_OK(mp_recipe_set_string(clone, "grad.dtype", "bf16"));
    const char* dtype = nullptr;
    MP_OK(mp_recipe_get_string(recipe, "grad.dtype", &dtype));
    EXPECT_STREQ(dtype, "fp32"); // the original stays
    MP_FAILS(mp_recipe_clone(nullptr, &raw), MP_STATUS_NULL_ARGUMENT, "recipe");
    EXPECT_EQ(raw, nullptr);
}

// Of every recipe: the parameter that its optimizer takes, with the values it was given, in E4M3 to one in 16.
TEST(Getters, TheWeightThatARecipeWants) {
    const Context context = make_context();
    const std::vector<float> values = numbers(6 * 32, 7);
    const int64_t shape[] = {6, 32};
    for (int32_t i = 0; i < mp_recipe_preset_count(); ++i) {
        const char* name = nullptr;
        MP_OK(mp_recipe_get_preset_info(i, &name, nullptr));
        SCOPED_TRACE(name);
        const Recipe recipe = make_recipe(context, name);
        mp_tensor* raw = nullptr;
        MP_OK(mp_recipe_create_weight(context, recipe, 2, shape, values.data(), &raw));
        const Tensor weight(raw);
        const Tensor exact = make_tensor(context, MP_DTYPE_FP32, {6, 32}, values);
        const Tensor back = make_tensor(context, MP_DTYPE_FP32, {6, 32});
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        MP_OK(mp_tensor_get_desc(weight, &desc));
        const char* dtype = nullptr;
        MP_OK(mp_recipe_get_string(recipe, MP_RECIPE_WEIGHT_DTYPE, &dtype));
        EXPECT_EQ(std::string(dtype).rfind(mp_dtype_name(desc.dtype), 0), 0U) << dtype;
        if (std::strstr(dtype, "_scaled") != nullptr) {
            MP_OK(mp_tensor_dequantize(weight, nullptr, back));
        } else {
            MP_OK(mp_tensor_cast(weight, nullptr, back, nullptr));
        }
        const std::vector<float> stored = values_of(context, back);
        for (std::size_t k = 0; k < stored.size(); ++k) {
            EXPECT_NEAR(stored[k], values[k], 0x1p-4 * std::abs(values[k]) + 1e-3);
        }
        const Optimizer optimizer = make_optimizer(context, recipe, MP_OPTIMIZER_DESC_INIT);
        int32_t group = -1;
        ASSERT_GE(mp_optimizer_add_group(optimizer, nullptr, &group), 0);
        mp_param_desc param = MP_PARAM_DESC_INIT;
        param.name = "w";
        param.param = weight;
        param.init_fp32 = exact;
        MP_OK(mp_optimizer_add_param(optimizer, group, &param, nullptr));
        raw = nullptr;
        MP_OK(mp_recipe_create_weight(context, recipe, 0, nullptr, nullptr, &raw)); // a zero
        mp_tensor_destroy(raw);
    }
    mp_tensor* raw = nullptr;
    const Recipe recipe = make_recipe(context, "fp32");
    MP_FAILS(mp_recipe_create_weight(context, recipe, 2, nullptr, nullptr, &raw),
             MP_STATUS_NULL_ARGUMENT, "shape");
    MP_FAILS(mp_recipe_create_weight(context, recipe, -1, shape, nullptr, &raw),
             MP_STATUS_INVALID_SHAPE, "ndim");
}

TEST(Getters, OfLayersAndRanks) {
    const Context context = make_context();
    const Recipe recipe = make_recipe(context, "bf16_mixed");
    const Tensor weight = make_tensor(context, MP_DTYPE_FP32, {4, 8}, numbers(32, 1));
    mp_linear_desc desc = MP_LINEAR_DESC_INIT;
    desc.in_features = 8;
    desc.out_features = 4;
    desc.flags = MP_LINEAR_CACHE_WEIGHT | MP_LINEAR_STATS;
    mp_linear* raw = nullptr;
    MP_OK(mp_linear_create(context, recipe, &desc, weight, nullptr, &raw));
    mp_linear_desc found = MP_LINEAR_DESC_INIT;
    MP_OK(mp_linear_get_desc(raw, &found));
    EXPECT_EQ(std::memcmp(&found, &desc, sizeof desc), 0);
    mp_linear_destroy(raw);
    mp_comm* comm = nullptr;
    MP_OK(mp_comm_create_self(nullptr, &comm));
    int64_t deadline = 0;
    MP_OK(mp_comm_get_deadline(comm, &deadline));
    EXPECT_EQ(deadline, 300000);
    MP_OK(mp_comm_set_deadline(comm, 1234));
    MP_OK(mp_comm_get_deadline(comm, &deadline));
    EXPECT_EQ(deadline, 1234);
    mp_comm_destroy(comm);
}

TEST(Getters, ElementTypesByName) {
    for (int32_t dtype = 1; dtype < 64; ++dtype) {
        const std::string name = mp_dtype_name(dtype);
        EXPECT_EQ(mp_dtype_from_name(name.c_str()), name == "unknown" ? MP_DTYPE_NONE : dtype)
            << name;
    }
    EXPECT_EQ(mp_dtype_from_name("bf16"), MP_DTYPE_BF16);
    for (const char* name : {"", "BF16", "bfloat16", "none", "unknown"}) {
        EXPECT_EQ(mp_dtype_from_name(name), MP_DTYPE_NONE) << name;
    }
    EXPECT_EQ(mp_dtype_from_name(nullptr), MP_DTYPE_NONE);
}

} // namespace
