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
    mp_tensor* out = nullptr;
    float memory[6] = {};
    MP_FAILS(mp_tensor_wrap(context, &desc, memory, nullptr, nullptr, &out),
             MP_STATUS_INVALID_ARGUMENT, "flags");
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
