// SPDX-License-Identifier: Apache-2.0
// What an optimizer is wrongly asked for: parameters, groups, states; each is refused, in words, and nothing is half done.
#include <cmath>

#include "optimizers.hpp"

using namespace mp_test;

TEST(OptimizerMisuse, NearestBf16SecondMomentIsWarnedOf) {
    const Context context = make_context();
    const Recipe recipe = make_recipe(context, "bf16_pure");
    const Optimizer optimizer = make_optimizer(context, recipe, MP_OPTIMIZER_DESC_INIT);
    mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
    int32_t index = -1;
    EXPECT_EQ(mp_optimizer_add_group(optimizer, &group, &index), MP_STATUS_WARNING);
    EXPECT_NE(std::string(mp_last_error_message()).find("never decrease"), std::string::npos);
    EXPECT_EQ(index, 0); // done all the same
    group.beta2 = 0.996;
    MP_OK(mp_optimizer_add_group(optimizer, &group, &index));
}

TEST(OptimizerMisuse, WrongParameters) {
    const Context context = make_context();
    const Recipe recipe = make_recipe(context, "bf16_pure");
    const Optimizer optimizer = make_optimizer(context, recipe, MP_OPTIMIZER_DESC_INIT);
    const Tensor param = make_tensor(context, MP_DTYPE_BF16, {4, 4});
    MP_FAILS(add_param(optimizer, 0, "p", param, nullptr, nullptr), MP_STATUS_INVALID_ARGUMENT,
             "group", "0");
    add_group(optimizer);
    MP_OK(add_param(optimizer, 0, "p", param, nullptr, nullptr));
    MP_FAILS(add_param(optimizer, 0, "p", param, nullptr, nullptr), MP_STATUS_INVALID_ARGUMENT,
             "already", "'p'");
    MP_FAILS(add_param(optimizer, 0, "", param, nullptr, nullptr), MP_STATUS_INVALID_ARGUMENT,
             "name");
    MP_FAILS(add_param(optimizer, 0, nullptr, param, nullptr, nullptr), MP_STATUS_NULL_ARGUMENT,
             "name");
    MP_FAILS(add_param(optimizer, 0, "q", nullptr, nullptr, nullptr), MP_STATUS_NULL_ARGUMENT,
             "param");
    const Tensor wrong = make_tensor(context, MP_DTYPE_FP16, {4, 4});
    MP_FAILS(add_param(optimizer, 0, "q", wrong, nullptr, nullptr), MP_STATUS_INVALID_DTYPE, "fp16",
             "bf16");
    const Tensor shape = make_tensor(context, MP_DTYPE_BF16, {16});
    MP_FAILS(add_param(optimizer, 0, "q", param, shape, nullptr), MP_STATUS_INVALID_SHAPE, "[4, 4]",
             "[16]");
    MP_FAILS(add_param(optimizer, 0, "q", param, nullptr, param), MP_STATUS_INVALID_DTYPE,
             "init_fp32");
    MP_FAILS(add_param(optimizer, 0, "q", param, param, nullptr), MP_STATUS_INVALID_ARGUMENT,
             "overlaps");
    const Tensor bytes = make_tensor(context, MP_DTYPE_INT8, {4, 4});
    const Tensor other = make_tensor(context, MP_DTYPE_BF16, {4, 4});
    MP_FAILS(add_param(optimizer, 0, "q", other, bytes, nullptr), MP_STATUS_INVALID_DTYPE, "int8");
    int32_t count = 0;
    MP_OK(mp_optimizer_get_param_count(optimizer, &count));
    EXPECT_EQ(count, 1); // nothing half-added
}

TEST(OptimizerMisuse, WrongCalls) {
    const Context context = make_context();
    const Recipe recipe = make_recipe(context, "bf16_pure");
    const Optimizer optimizer = make_optimizer(context, recipe, MP_OPTIMIZER_DESC_INIT);
    const Tensor param = make_tensor(context, MP_DTYPE_BF16, {4, 4});
    add_group(optimizer);
    MP_OK(add_param(optimizer, 0, "p", param));
    mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
    int32_t index = 0;
    group.beta1 = 1.0;
    MP_FAILS(mp_optimizer_add_group(optimizer, &group, &index), MP_STATUS_INVALID_ARGUMENT, "beta1",
             "1");
    group = MP_PARAM_GROUP_DESC_INIT;
    group.lr = NAN;
    MP_FAILS(mp_optimizer_add_group(optimizer, &group, &index), MP_STATUS_INVALID_ARGUMENT, "lr",
             "nan");
    MP_FAILS(mp_optimizer_set_lr(optimizer, 5, 0.1), MP_STATUS_INVALID_ARGUMENT, "group", "5");
    MP_FAILS(mp_optimizer_set_lr(optimizer, 0, -0.1), MP_STATUS_INVALID_ARGUMENT, "lr");
    mp_tensor* out = nullptr;
    MP_FAILS(mp_optimizer_get_state(optimizer, 0, "master", &out), MP_STATUS_UNKNOWN_NAME, "master",
             "exp_avg_sq");
    MP_FAILS(mp_optimizer_get_state(optimizer, 3, "param", &out), MP_STATUS_INVALID_ARGUMENT, "3");
    MP_FAILS(mp_optimizer_set_step(optimizer, nullptr, -1), MP_STATUS_INVALID_ARGUMENT, "-1");
    mp_optimizer* raw = nullptr;
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    desc.max_grad_norm = -2;
    MP_FAILS(mp_optimizer_create(context, recipe, &desc, &raw), MP_STATUS_INVALID_ARGUMENT,
             "max_grad_norm");
    desc = MP_OPTIMIZER_DESC_INIT;
    desc.flags = 1u << 31;
    MP_FAILS(mp_optimizer_create(context, recipe, &desc, &raw), MP_STATUS_INVALID_ARGUMENT,
             "flags");
    int32_t count = 0;
    MP_OK(mp_optimizer_get_param_count(optimizer, &count));
    EXPECT_EQ(count, 1); // nothing half-added
}

// A step works on all parameters at once: none may be written twice, nor be another's gradient.
TEST(OptimizerMisuse, ParametersThatShareMemoryAreRefused) {
    const Context context = make_context();
    const Recipe recipe = make_recipe(context, "fp32");
    const Optimizer optimizer =
        make_optimizer(context, recipe, mp_optimizer_desc MP_OPTIMIZER_DESC_INIT);
    const int32_t group = add_group(optimizer);
    std::vector<float> memory(300);
    const auto piece = [&](std::size_t first, int64_t count) {
        return wrap_tensor(context, MP_DTYPE_FP32, {count}, memory.data() + first);
    };
    const Tensor param = piece(0, 100);
    const Tensor grad = piece(100, 100);
    MP_OK(add_param(optimizer, group, "a", param, grad, nullptr));
    MP_FAILS(add_param(optimizer, group, "b", param, nullptr, nullptr), MP_STATUS_INVALID_ARGUMENT,
             "weight of 'b'", "weight of 'a'");
    MP_FAILS(add_param(optimizer, group, "b", piece(99, 50), nullptr, nullptr),
             MP_STATUS_INVALID_ARGUMENT, "'a'");
    MP_FAILS(add_param(optimizer, group, "b", piece(199, 50), nullptr, nullptr),
             MP_STATUS_INVALID_ARGUMENT, "weight of 'b'", "gradient of 'a'");
    MP_FAILS(add_param(optimizer, group, "b", piece(200, 100), grad, nullptr),
             MP_STATUS_INVALID_ARGUMENT, "gradient of 'b'");
    int32_t count = 0;
    MP_OK(mp_optimizer_get_param_count(optimizer, &count));
    EXPECT_EQ(count, 1);
    MP_OK(add_param(optimizer, group, "b", piece(200, 100), nullptr, nullptr));
}
