// SPDX-License-Identifier: Apache-2.0
// Wrong calls of layers (linear.h): arguments that share memory, and calls at the wrong time.
// linear.cpp has operands that do not fit.
#include <future>
#include <thread>
#include <utility>

#include "layers.hpp"
#include "optimizers.hpp"
#include "wrong_calls.hpp"

using namespace mp_test;

namespace {

// Of 4 rows, 16 in and 8 out, with everything in one memory.
struct Layer {
    Context context = make_context(1);
    Tensor memory = make_tensor(context, MP_DTYPE_FP32, {4096});
    Tensor weight = view(0, {8, 16}), bias = view(128, {8}), x = view(256, {4, 16}),
           dy = view(512, {4, 8});
    Tensor dx = view(768, {4, 16}), dw = view(1024, {8, 16}), dbias = view(1280, {8});
    Linear linear =
        make_linear(context, make_recipe(context, "fp32"), linear_desc(16, 8), weight, bias);

    Tensor view(int64_t offset, const std::vector<int64_t>& shape) const {
        return view_of(memory, offset, shape);
    }
    mp_status forward(mp_tensor* to) const { return mp_linear_forward(linear, nullptr, x, to); }
    mp_status backward(mp_tensor* to_dx, mp_tensor* to_dw, mp_tensor* to_dbias) const {
        return mp_linear_backward(linear, nullptr, dy, to_dx, to_dw, to_dbias, 0);
    }
};

} // namespace

TEST(WrongCallsLinear, ArgumentsThatShareMemory) {
    const Layer l;
    MP_OK(l.forward(l.view(2000, {4, 8})));
    MP_OK(l.backward(l.dx, l.dw, l.dbias));
    // The fp32 recipe keeps no copy of x.
    expect_refused<MP_STATUS_INVALID_ARGUMENT>({
        {"y on the bias", l.forward(l.view(130, {4, 8})), {"bias"}},
        {"dw on x", l.backward(nullptr, l.view(250, {8, 16}), nullptr), {"x of forward"}},
        {"dx on x", l.backward(l.view(300, {4, 16}), l.dw, nullptr), {"x of forward"}},
        {"dw on the weight", l.backward(nullptr, l.view(64, {8, 16}), nullptr), {"weight"}},
        {"dbias on the bias", l.backward(nullptr, l.dw, l.view(128, {8})), {"bias"}},
        {"dx on dw", l.backward(l.view(1020, {4, 16}), l.dw, nullptr), {"overlap"}},
        {"dbias on dw", l.backward(nullptr, l.dw, l.view(1030, {8})), {"overlap"}},
        {"dx on dbias", l.backward(l.view(1276, {4, 16}), l.dw, l.dbias), {"overlap"}},
        {"dx on the weight",
         mp_linear_backward_data(l.linear, nullptr, l.dy, l.view(100, {4, 16})),
         {"weight"}},
    });
    // Alone dx may take the place of x, which nobody reads any more.
    MP_OK(mp_linear_backward_data(l.linear, nullptr, l.dy, l.x));
    MP_FAILS(l.backward(nullptr, l.dw, nullptr), MP_STATUS_BAD_STATE, "dx was written over it");
}

TEST(WrongCallsLinear, AStepThatTheOptimizerEndsIsNotEndedTwice) {
    const Context context = make_context(1);
    const Tensor weight = make_tensor(context, MP_DTYPE_FP32, {64, 64});
    const Linear layer =
        make_linear(context, make_recipe(context, "fp8_delayed"), linear_desc(64, 64), weight);
    mp_linear* const one = layer;
    Optimizer optimizer = make_optimizer(context, make_recipe(context, "fp32"));
    add_group(optimizer);
    MP_OK(add_param(optimizer, 0, "w", weight));
    MP_OK(mp_optimizer_set_linears(optimizer, &one, 1));
    MP_FAILS(mp_linear_end_step(&one, 1, nullptr, nullptr), MP_STATUS_BAD_STATE,
             "mp_optimizer_set_linears");
    MP_OK(mp_optimizer_set_linears(optimizer, nullptr, 0));
    MP_OK(mp_linear_end_step(&one, 1, nullptr, nullptr));
    MP_OK(mp_optimizer_set_linears(optimizer, &one, 1));
    optimizer = Optimizer();
    MP_OK(mp_linear_end_step(&one, 1, nullptr, nullptr));
}

// A callback may come in again; another thread may not meanwhile.
TEST(WrongCallsLinear, AnObjectInUseByAnotherThreadIsRefused) {
    const Context context = make_context(1);
    const Tensor weight = make_tensor(context, MP_DTYPE_FP32, {64, 64});
    const Linear layer =
        make_linear(context, make_recipe(context, "fp8_current"), linear_desc(64, 64), weight);
    struct Meeting {
        mp_linear* layer;
        std::promise<void> is_inside;
        std::promise<void> may_go;
        bool has_met = false;
        mp_status nested = MP_STATUS_INTERNAL;
    } meeting;
    meeting.layer = layer;
    MP_OK(mp_linear_set_monitor(
        layer, "layer", 1,
        [](void* payload, const char*, const mp_linear_stats*, const char*) {
            auto& at = *static_cast<Meeting*>(payload);
            if (std::exchange(at.has_met, true)) {
                return;
            }
            mp_linear_desc desc = MP_LINEAR_DESC_INIT;
            at.nested = mp_linear_get_desc(at.layer, &desc);
            at.is_inside.set_value();
            at.may_go.get_future().wait();
        },
        &meeting));
    std::thread busy([&] {
        mp_linear* const one = layer;
        EXPECT_TRUE(succeeded(mp_linear_end_step(&one, 1, nullptr, nullptr)));
    });
    meeting.is_inside.get_future().wait();
    mp_linear_desc desc = MP_LINEAR_DESC_INIT;
    MP_FAILS(mp_linear_get_desc(layer, &desc), MP_STATUS_BAD_STATE, "another thread");
    meeting.may_go.set_value();
    busy.join();
    EXPECT_EQ(meeting.nested, MP_STATUS_OK);
    MP_OK(mp_linear_get_desc(layer, &desc));
}
