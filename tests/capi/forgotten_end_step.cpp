// SPDX-License-Identifier: Apache-2.0
// mp_linear_end_step that was forgotten is told of, also where gradients are always added.
#include "support.hpp"

using namespace mp_test;

namespace {
constexpr int64_t kSize = 32, kRows = 16;
} // namespace

// Programs that always add: an optimizer's step between two gradients is what tells.
TEST(ForgottenEndOfStep, IsToldOfWhereGradientsAreAdded) {
    for (const char* name : {"fp8_delayed", "msamp_o1", "bf16_mixed", "fp8_current"}) {
        for (const bool caches : {false, true}) {
            for (const bool forgets : {false, true}) {
                SCOPED_TRACE(std::string(name) + (caches ? ", cached" : "") +
                             (forgets ? ", forgets" : ""));
                const bool matters =
                    caches || std::string(name) == "fp8_delayed" || std::string(name) == "msamp_o1";
                const Context context = make_context(1);
                const Recipe recipe = make_recipe(context, name);
                std::vector<float> w = numbers(kSize * kSize, 3), dw(w.size()), m(w.size()),
                                   v(w.size()), x = numbers(kRows * kSize, 4), y(x.size());
                mp_linear_desc desc = MP_LINEAR_DESC_INIT;
                desc.in_features = desc.out_features = kSize;
                desc.flags = caches ? MP_LINEAR_CACHE_WEIGHT : 0U;
                mp_linear* made = nullptr;
                EXPECT_TRUE(
                    done(mp_linear_create_pointers(context, recipe, &desc, w.data(), MP_DTYPE_FP32,
                                                   nullptr, MP_DTYPE_NONE, &made)));
                const Linear layer(made);
                mp_step_slot slot = MP_STEP_SLOT_INIT;
                slot.count = kSize * kSize;
                slot.param.data = w.data();
                slot.grad.data = dw.data();
                slot.states[0].data = m.data();
                slot.states[1].data = v.data();
                slot.param.dtype = slot.grad.dtype = slot.states[0].dtype = slot.states[1].dtype =
                    MP_DTYPE_FP32;
                mp_step_args args = MP_STEP_ARGS_INIT;
                args.lr = 1e-3;
                args.flags |= MP_OPTIMIZER_ZERO_GRAD;
                int notes = 0;
                for (int step = 0; step < 3; ++step) {
                    for (int micro = 0; micro < 4; ++micro) {
                        MP_OK(mp_linear_forward_pointers(layer, nullptr, kRows, x.data(), y.data(),
                                                         MP_DTYPE_FP32));
                        const mp_status status = mp_linear_backward_pointers(
                            layer, nullptr, kRows, y.data(), nullptr, MP_DTYPE_FP32, dw.data(),
                            nullptr, MP_DTYPE_FP32, MP_BACKWARD_ACCUMULATE);
                        EXPECT_TRUE(done(status));
                        notes += status > 0 ? 1 : 0;
                        EXPECT_TRUE(
                            status == 0 ||
                            std::string(mp_last_error_message()).find("mp_linear_end_step") !=
                                std::string::npos);
                    }
                    MP_OK(mp_optimizer_step_pointers(context, nullptr, &args, &slot, 1, nullptr,
                                                     nullptr));
                    mp_linear* const one = layer;
                    if (!forgets) {
                        MP_OK(mp_linear_end_step(&one, 1, nullptr, nullptr));
                    }
                }
                EXPECT_EQ(notes, forgets && matters ? 1 : 0);
            }
        }
    }
}
