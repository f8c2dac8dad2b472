// SPDX-License-Identifier: Apache-2.0
// Calls of adapter.h that are refused, and what they leave.
#include "adapters.hpp"
#include "memory.hpp"

using namespace mp_test;
using namespace mp_test::adapters;

namespace {

struct WrongAdapter : ::testing::Test {
    Model model{"fp32"};
    Tensor a = make_tensor(model.context, MP_DTYPE_FP32, {kRank, kIn});
    Tensor b = make_tensor(model.context, MP_DTYPE_FP32, {kOut, kRank});

    mp_status create(const mp_adapter_desc* desc, mp_tensor* first, mp_tensor* second,
                     mp_linear* layer = nullptr) {
        mp_adapter* made = nullptr;
        const mp_status status =
            mp_adapter_create(layer != nullptr ? layer : static_cast<mp_linear*>(model.layer),
                              model.recipe, desc, first, second, &made);
        const Adapter owned(made);
        EXPECT_EQ(made != nullptr, status >= 0);
        return status;
    }
};

} // namespace

TEST_F(WrongAdapter, WhatMakesNone) {
    MP_FAILS(create(nullptr, nullptr, b), MP_STATUS_NULL_ARGUMENT, "a is NULL");
    MP_FAILS(create(nullptr, a, nullptr), MP_STATUS_NULL_ARGUMENT, "b is NULL");
    MP_FAILS(create(nullptr, b, a), MP_STATUS_INVALID_SHAPE, "a is [48, 16]", "[48, 64]");
    MP_FAILS(create(nullptr, a, a), MP_STATUS_INVALID_SHAPE, "b is [16, 64]", "[48, 16]");
    MP_FAILS(create(nullptr, make_tensor(model.context, MP_DTYPE_FP32, {kIn}), b),
             MP_STATUS_INVALID_SHAPE, "[r, in]");
    mp_adapter_desc desc = adapter_desc(-1.0);
    MP_FAILS(create(&desc, a, b), MP_STATUS_INVALID_ARGUMENT, "alpha is -1");
    desc.alpha = 1e300;
    MP_FAILS(create(&desc, a, b), MP_STATUS_INVALID_ARGUMENT, "alpha");
    desc = adapter_desc(8.0);
    desc.rank = kRank + 1;
    MP_FAILS(create(&desc, a, b), MP_STATUS_INVALID_SHAPE, "desc.rank");
    desc.rank = 0;
    desc.flags = 0x80;
    MP_FAILS(create(&desc, a, b), MP_STATUS_INVALID_ARGUMENT, "desc.flags");
    desc.flags = 0;
    const std::string name(250, 'n');
    desc.name = name.c_str();
    MP_FAILS(create(&desc, a, b), MP_STATUS_INVALID_ARGUMENT, "262 bytes",
             "<layer>.lora_A.<adapter>");
    const Linear trained = make_base(model.context, model.recipe, model.w, nullptr, 0);
    MP_FAILS(create(nullptr, a, b, trained), MP_STATUS_INVALID_ARGUMENT, "MP_LINEAR_FROZEN");
    const Lora first(model.context, model.layer, model.recipe, 8.0, 1);
    MP_FAILS(create(nullptr, a, b), MP_STATUS_INVALID_ARGUMENT, "'default'", "desc.name");
}

TEST_F(WrongAdapter, GradientsOfOtherShapes) {
    const Lora lora(model.context, model.layer, model.recipe, 8.0, 1);
    MP_FAILS(mp_adapter_set_grads(lora.adapter, lora.db, lora.db), MP_STATUS_INVALID_SHAPE,
             "da is");
    MP_FAILS(mp_adapter_set_grads(lora.adapter, lora.da, lora.da), MP_STATUS_INVALID_SHAPE,
             "db is");
    const Linear fixed =
        make_base(model.context, model.recipe, model.w, nullptr, MP_LINEAR_INFERENCE);
    const Adapter adapter = make_adapter(fixed, model.recipe, adapter_desc(8.0), a, b);
    MP_FAILS(mp_adapter_set_grads(adapter, lora.da, lora.db), MP_STATUS_BAD_STATE,
             "MP_LINEAR_INFERENCE");
    EXPECT_TRUE(succeeded(mp_linear_forward(fixed, nullptr, model.x, model.y)));
}

TEST_F(WrongAdapter, PassesThatCannotBe) {
    const Lora lora(model.context, model.layer, model.recipe, 8.0, 1);
    const Outcome good = model.pass(lora);
    const auto refused = [&](mp_status status, mp_status code, const std::string& word) {
        MP_FAILS(status, code, word);
        EXPECT_EQ(model.outcome(lora), good);
    };
    refused(mp_linear_backward(model.layer, nullptr, model.dy, model.dx, model.w, nullptr, 0),
            MP_STATUS_BAD_STATE, "MP_LINEAR_FROZEN");
    refused(mp_linear_backward(model.layer, nullptr, model.dy, lora.da, nullptr, nullptr, 0),
            MP_STATUS_INVALID_SHAPE, "dx");
    refused(mp_linear_backward(model.layer, nullptr, model.dy, model.x, nullptr, nullptr, 0),
            MP_STATUS_INVALID_ARGUMENT, "x of forward");
    refused(mp_linear_forward(model.layer, nullptr, model.x, model.x), MP_STATUS_INVALID_SHAPE,
            "y");
    const Tensor over = wrap_tensor(model.context, MP_DTYPE_FP32, {kOut / 3, kOut},
                                    data_of(lora.b)); // b has 48 x 16
    const Tensor few = view_of(model.x, 0, {kOut / 3, kIn});
    refused(mp_linear_forward(model.layer, nullptr, few, over), MP_STATUS_INVALID_ARGUMENT,
            "weight");
    MP_OK(mp_adapter_set_grads(lora.adapter, nullptr, nullptr));
    refused(mp_linear_backward_weight(model.layer, nullptr, model.dy, nullptr, nullptr, 0),
            MP_STATUS_INVALID_ARGUMENT, "mp_adapter_set_grads");
    MP_OK(mp_adapter_set_grads(lora.adapter, lora.da, lora.db));
    EXPECT_EQ(model.pass(lora), good);
}

TEST_F(WrongAdapter, MemoryThatIsTooSmall) {
    const Lora lora(model.context, model.layer, model.recipe, 8.0, 1);
    std::size_t bytes = 0;
    MP_OK(mp_linear_get_saved_bytes(model.layer, kRows, &bytes));
    const Block memory(bytes);
    const Saved saved = make_saved(model.layer);
    MP_OK(mp_saved_set_memory(saved, memory.memory.get(), bytes - 1));
    MP_FAILS(mp_linear_forward_saved(model.layer, nullptr, model.x, model.y, saved, 0),
             MP_STATUS_INVALID_ARGUMENT, std::to_string(bytes), "mp_linear_get_saved_bytes");
    MP_OK(mp_saved_set_memory(saved, memory.memory.get(), bytes));
    MP_OK(mp_linear_forward_saved(model.layer, nullptr, model.x, model.y, saved, 0));
}

TEST_F(WrongAdapter, GradientsThatShareMemory) {
    const Lora lora(model.context, model.layer, model.recipe, 8.0, 1);
    MP_OK(mp_linear_forward(model.layer, nullptr, model.x, model.y));
    const Tensor over = wrap_tensor(model.context, MP_DTYPE_FP32, {kOut, kRank}, data_of(lora.da));
    MP_OK(mp_adapter_set_grads(lora.adapter, lora.da, over));
    MP_FAILS(mp_linear_backward(model.layer, nullptr, model.dy, model.dx, nullptr, nullptr, 0),
             MP_STATUS_INVALID_ARGUMENT, "dw");
    const Tensor weight = wrap_tensor(model.context, MP_DTYPE_FP32, {kRank, kIn}, data_of(lora.a));
    MP_OK(mp_adapter_set_grads(lora.adapter, weight, lora.db));
    MP_FAILS(mp_linear_backward(model.layer, nullptr, model.dy, model.dx, nullptr, nullptr, 0),
             MP_STATUS_INVALID_ARGUMENT, "weight");
}

TEST_F(WrongAdapter, SavedOfAFrozenLayerNeedsAnAdapter) {
    mp_saved* saved = nullptr;
    MP_FAILS(mp_saved_create(model.layer, &saved), MP_STATUS_BAD_STATE, "no adapter");
    const Lora lora(model.context, model.layer, model.recipe, 8.0, 1);
    MP_OK(mp_saved_create(model.layer, &saved));
    mp_saved_destroy(saved);
}
