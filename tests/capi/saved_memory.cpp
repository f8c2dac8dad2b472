// SPDX-License-Identifier: Apache-2.0
// What a forward keeps, layers and their work in memory of the caller's: the same bits, and what does not fit is refused.
#include <algorithm>

#include "layers.hpp"
#include "memory.hpp"
#include "saved.hpp"

using namespace mp_test;
using namespace mp_test::saved;

namespace {
struct SavedMemory : SavedTest {};
} // namespace

TEST_F(SavedMemory, WhatIsKeptMayBeMovedAwayAndBack) {
    for (const char* name : kRecipes) {
        SCOPED_TRACE(name);
        const Layer plain(context, name, 3), moving(context, name, 3);
        const Tensor dy = activation(2);
        for (const int32_t dtype : {MP_DTYPE_FP32, MP_DTYPE_BF16}) {
            const Tensor x = make_tensor(context, dtype, {kRows, kSize}, numbers(kRows * kSize, 9));
            const auto expected = simple(plain.linear, x, dy);
            size_t bytes = 0;
            MP_OK(mp_linear_get_saved_bytes(moving.linear, kRows, &bytes));
            const Block here(bytes), there(bytes);
            const Saved saved = make_saved(moving.linear);
            MP_OK(mp_saved_set_memory(saved, here.memory.get(), bytes));
            void* memory = nullptr;
            size_t got = 0;
            MP_OK(mp_saved_get_memory(saved, &memory, &got));
            EXPECT_EQ(memory, here.memory.get());
            EXPECT_EQ(got, bytes);
            const Tensor y = empty(), dx = empty();
            MP_OK(mp_linear_forward_saved(moving.linear, nullptr, x, y, saved, 0));
            MP_OK(mp_tensor_zero(x, nullptr)); // memory of the caller's has a copy always
            std::memcpy(there.memory.get(), here.memory.get(), bytes);
            std::memset(here.memory.get(), 0x5a, bytes);
            EXPECT_TRUE(fails(mp_saved_set_memory(saved, there.memory.get(), bytes - 1),
                              MP_STATUS_INVALID_ARGUMENT, {std::to_string(bytes)}));
            MP_OK(mp_saved_set_memory(saved, there.memory.get(), bytes));
            EXPECT_TRUE(done(mp_linear_backward_saved(moving.linear, nullptr, saved, dy, dx,
                                                      moving.dw, nullptr, 0)));
            EXPECT_EQ((Pass{bytes_of(y), bytes_of(dx), bytes_of(moving.dw)}), expected);
            MP_OK(mp_saved_set_memory(saved, nullptr, 0)); // drops x
            EXPECT_TRUE(fails(mp_linear_backward_saved(moving.linear, nullptr, saved, dy, dx,
                                                       moving.dw, nullptr, 0),
                              MP_STATUS_BAD_STATE, {"drop"}));
        }
    }
}

TEST_F(SavedMemory, PlainMemoryGivesTheSameBits) {
    for (const char* name : kRecipes) {
        SCOPED_TRACE(name);
        const Layer layer(context, name, 3);
        const Tensor x = activation(1), dy = activation(2);
        const auto expected = simple(layer.linear, x, dy);
        const std::vector<float> weight = values_of(context, layer.w),
                                 input = values_of(context, x), gradient = values_of(context, dy);
        const std::string called = layer_name(3);
        mp_linear_desc desc = linear_desc(kSize, kSize);
        desc.name = called.c_str();
        mp_linear* made = nullptr;
        ASSERT_TRUE(
            done(mp_linear_create_pointers(context, recipe_of(context, name), &desc, weight.data(),
                                           MP_DTYPE_FP32, nullptr, MP_DTYPE_NONE, &made)));
        const Linear plain(made);
        std::vector<float> y(input.size()), dx(input.size()), dw(weight.size());
        MP_OK(mp_linear_forward_pointers(plain, nullptr, kRows, input.data(), y.data(),
                                         MP_DTYPE_FP32));
        MP_OK(mp_linear_backward_pointers(plain, nullptr, kRows, gradient.data(), dx.data(),
                                          MP_DTYPE_FP32, dw.data(), nullptr, MP_DTYPE_FP32, 0));
        const auto raw = [](const std::vector<float>& values) {
            Bytes bytes(values.size() * sizeof(float));
            std::memcpy(bytes.data(), values.data(), bytes.size());
            return bytes;
        };
        EXPECT_EQ((Pass{raw(y), raw(dx), raw(dw)}), expected);
        EXPECT_TRUE(fails(
            mp_linear_forward_pointers(plain, nullptr, -1, input.data(), y.data(), MP_DTYPE_FP32),
            MP_STATUS_INVALID_SHAPE, {"rows"}));
        EXPECT_TRUE(fails(
            mp_linear_forward_pointers(plain, nullptr, kRows, nullptr, y.data(), MP_DTYPE_FP32),
            MP_STATUS_NULL_ARGUMENT, {"x"}));
        const auto* const odd = reinterpret_cast<const unsigned char*>(input.data()) + 1;
        EXPECT_TRUE(
            fails(mp_linear_forward_pointers(plain, nullptr, kRows, odd, y.data(), MP_DTYPE_FP32),
                  MP_STATUS_INVALID_ARGUMENT, {"x", "aligned"}));
        EXPECT_TRUE(fails(mp_linear_forward_pointers(plain, nullptr, kRows, input.data(), y.data(),
                                                     MP_DTYPE_FP8_E4M3),
                          MP_STATUS_INVALID_DTYPE, {"x"}));
        EXPECT_TRUE(
            fails(mp_linear_backward_pointers(plain, nullptr, kRows, gradient.data(), nullptr,
                                              MP_DTYPE_FP32, nullptr, nullptr, MP_DTYPE_FP32, 0),
                  MP_STATUS_INVALID_ARGUMENT, {"dx", "dw"}));
        MP_OK(mp_linear_forward_pointers(plain, nullptr, 0, nullptr, nullptr, MP_DTYPE_FP32));
    }
}

TEST_F(SavedMemory, WorkInTheCallersMemoryTakesNoOther) {
    for (const char* name : kRecipes) {
        if (is_stochastic(name)) {
            continue;
        }
        SCOPED_TRACE(name);
        Counter counted;
        const Context own = make_counted_context(&counted, 0);
        const Queue queue = make_queue(own);
        const Layer layer(own, name, 3);
        const auto tensor = [&](uint64_t seed) {
            return make_tensor(own, MP_DTYPE_FP32, {kRows, kSize}, numbers(kRows * kSize, seed));
        };
        const Tensor x = tensor(1), dy = tensor(2), y = tensor(3), dx = tensor(4);
        const auto pass = [&]() -> mp_status {
            const mp_status status = mp_linear_forward(layer.linear, queue, x, y);
            return status < 0
                       ? status
                       : mp_linear_backward(layer.linear, queue, dy, dx, layer.dw, nullptr, 0);
        };
        EXPECT_TRUE(done(pass()));
        const Pass expected = {bytes_of(y), bytes_of(dx), bytes_of(layer.dw)};
        size_t bytes = 0;
        MP_OK(mp_queue_get_workspace_peak(queue, &bytes));
        const Block memory(std::max<size_t>(bytes, 1));
        MP_OK(mp_queue_set_workspace(queue, memory.memory.get(), bytes));
        void* told = nullptr;
        size_t told_bytes = 0;
        MP_OK(mp_queue_get_workspace(queue, &told, &told_bytes));
        EXPECT_EQ(told, memory.memory.get());
        EXPECT_EQ(told_bytes, bytes);
        EXPECT_TRUE(done(pass()));
        const int64_t before = counted.calls;
        EXPECT_TRUE(done(pass()));
        EXPECT_EQ(counted.calls, before);
        EXPECT_EQ((Pass{bytes_of(y), bytes_of(dx), bytes_of(layer.dw)}), expected);
        if (bytes > 0) {
            MP_OK(mp_queue_set_workspace(queue, memory.memory.get(), 0));
            EXPECT_TRUE(fails(pass(), MP_STATUS_OUT_OF_MEMORY, {"workspace", "needed"}));
        }
        MP_OK(mp_queue_set_workspace(queue, nullptr, 0));
        EXPECT_TRUE(done(pass()));
        EXPECT_EQ((Pass{bytes_of(y), bytes_of(dx), bytes_of(layer.dw)}), expected);
    }
}
