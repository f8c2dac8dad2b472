// SPDX-License-Identifier: Apache-2.0
// Gradients in memory of the caller's before ranks have cut the parameters.
#include "callers_memory.hpp"

using namespace mp_test;

namespace {

constexpr int32_t kRanks = 3;

} // namespace

// Of gradients that were there before the first step cut the parameters, none is lost.
TEST(CallersGradients, TakesGradientsOfBeforeTheCut) {
    run_sharded(kRanks, [](mp_comm* comm, int32_t /*rank*/) {
        std::vector<float> after[2];
        for (const int32_t stage : {1, 2}) {
            const Context context = make_context(1);
            const mp_sharding_desc sharding = stage_desc(stage);
            const Optimizer optimizer =
                make_optimizer_on(comm, context, make_recipe(context, "fp32"), nullptr, &sharding);
            add_group(optimizer);
            std::vector<float> weight = numbers(40000, 1), grad = numbers(40000, 2);
            const mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP32, {40000});
            mp_tensor* made[2] = {};
            MP_OK(mp_tensor_wrap(context, &desc, weight.data(), nullptr, nullptr, &made[0]));
            MP_OK(mp_tensor_wrap(context, &desc, grad.data(), nullptr, nullptr, &made[1]));
            const Tensor param(made[0]), gradient(made[1]);
            MP_OK(add_param(optimizer, 0, "w", param, gradient));
            MP_OK(mp_optimizer_step(optimizer, nullptr, nullptr));
            after[stage - 1] = weight;
            EXPECT_EQ(grad, stage == 1 ? numbers(40000, 2) : std::vector<float>(40000));
        }
        EXPECT_EQ(after[0], after[1]);
        EXPECT_NE(after[0], numbers(40000, 1));
    });
}

// Before the cut it has no memory, and what was written there would be taken for zeros.
TEST(CallersGradients, AGradientOfAPlaceWaitsForTheCut) {
    run_sharded(kRanks, [](mp_comm* comm, int32_t /*rank*/) {
        const Context context = make_context(1);
        const Recipe recipe = make_recipe(context, "fp32");
        mp_sharding_desc zero = MP_SHARDING_DESC_INIT;
        zero.stage = 2;
        const Optimizer optimizer = make_optimizer_on(comm, context, recipe, nullptr, &zero);
        const int32_t group = add_group(optimizer);
        std::vector<float> memory(64);
        const Tensor weight = make_tensor(context, MP_DTYPE_FP32, {64});
        mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP32, {64});
        desc.flags = MP_TENSOR_DEFERRED;
        mp_tensor* made = nullptr;
        MP_OK(mp_tensor_wrap(context, &desc, memory.data(), nullptr, nullptr, &made));
        const Tensor grad(made);
        MP_OK(add_param(optimizer, group, "w", weight, grad));
        MP_FAILS(mp_optimizer_acquire_grad(optimizer, nullptr, 0), MP_STATUS_BAD_STATE,
                 "mp_optimizer_shard");
        MP_OK(mp_optimizer_shard(optimizer, nullptr));
        MP_OK(mp_optimizer_acquire_grad(optimizer, nullptr, 0));
        MP_OK(mp_optimizer_step(optimizer, nullptr, nullptr));
    });
}
