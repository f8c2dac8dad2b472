// SPDX-License-Identifier: Apache-2.0
// Deferred tensors by themselves. On ranks, and their values: first_values.cpp.
#include "optimizers.hpp"

using namespace mp_test;

// Type and shape, and nothing else, until an optimizer has it.
TEST(Deferred, HasNoMemory) {
    const Context context = make_context(1);
    const Tensor tensor = make_deferred(context, MP_DTYPE_FP32, {2, 3});
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    MP_OK(mp_tensor_get_desc(tensor, &desc));
    EXPECT_EQ(desc.flags, MP_TENSOR_DEFERRED);
    EXPECT_EQ(desc.shape[1], 3);
    void* data = nullptr;
    MP_FAILS(mp_tensor_get_data(tensor, &data), MP_STATUS_BAD_STATE, "deferred");
    MP_FAILS(mp_tensor_zero(tensor, nullptr), MP_STATUS_BAD_STATE, "deferred");
    const float memory[6] = {};
    const Recipe recipe = make_recipe(context, "fp32");
    const Optimizer optimizer = make_optimizer(context, recipe);
    add_group(optimizer);
    MP_OK(add_param(optimizer, 0, "w", tensor));
    MP_OK(mp_tensor_get_desc(tensor, &desc));
    EXPECT_EQ(desc.flags, 0U);
    EXPECT_EQ(values_of(context, tensor), std::vector<float>(6));
    MP_FAILS(mp_optimizer_step(optimizer, nullptr, nullptr), MP_STATUS_BAD_STATE, "'w'");
    MP_OK(mp_tensor_write(tensor, nullptr, memory, sizeof memory));
    MP_OK(mp_optimizer_sync_master(optimizer, nullptr, 0)); // the caller's values
    MP_OK(mp_optimizer_step(optimizer, nullptr, nullptr));
}

TEST(Deferred, MayNameTheirMemory) {
    const Context context = make_context();
    float memory[2][6] = {{1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}};
    mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP32, {2, 3});
    desc.flags = MP_TENSOR_DEFERRED;
    std::vector<Tensor> tensors;
    int released = 0;
    for (float* const data : {memory[0], memory[1]}) {
        mp_tensor* made = nullptr;
        MP_OK(mp_tensor_wrap(
            context, &desc, data, [](void* payload) { ++*static_cast<int*>(payload); }, &released,
            &made));
        tensors.emplace_back(made);
    }
    void* data = nullptr;
    MP_FAILS(mp_tensor_get_data(tensors[0], &data), MP_STATUS_BAD_STATE, "deferred");
    EXPECT_EQ(memory[0][5], 6.0F);
    const Recipe recipe = make_recipe(context, "fp32");
    Optimizer optimizer = make_optimizer(context, recipe);
    add_group(optimizer);
    MP_OK(add_param(optimizer, 0, "w", tensors[0], tensors[1])); // which has them always
    for (std::size_t i = 0; i < 2; ++i) {
        MP_OK(mp_tensor_get_data(tensors[i], &data));
        EXPECT_EQ(data, memory[i]);
        EXPECT_EQ(memory[i][5], 0.0F);
    }
    optimizer = Optimizer();
    tensors.clear();
    EXPECT_EQ(released, 2);
}
