// SPDX-License-Identifier: Apache-2.0
// Loss scaling: the published rules step by step, saving in the middle, and the check of the caller's gradients.
#include <cmath>
#include <limits>

#include "wrong_calls.hpp"

using namespace mp_test;

namespace {

mp_scaler_state state_of(mp_scaler* scaler) {
    mp_scaler_state state{};
    state.struct_size = sizeof state;
    EXPECT_GE(mp_scaler_get_state(scaler, nullptr, &state), MP_STATUS_BAD_STATE);
    return state;
}

void feed(mp_scaler* scaler, bool finite) {
    const float value = finite ? 1.0F : std::numeric_limits<float>::infinity();
    const void* pointer = &value;
    const int32_t dtype = MP_DTYPE_FP32;
    const int64_t count = 1;
    EXPECT_TRUE(succeeded(mp_scaler_check_pointers(scaler, nullptr, 1, &pointer, &dtype, &count)));
    EXPECT_TRUE(succeeded(mp_scaler_update(scaler, nullptr)));
}

struct Golden {
    const char* preset;
    uint32_t flags;
    std::vector<int> log2_scale;
};

// 27 steps with overflows at 5, 7, 10, 16, 17, 18 (from 1), growth interval 4, start 2^16; hysteresis 2 for
// Megatron and DeepSpeed. Worked out from the published code of the four systems.
const std::vector<Golden>& goldens() {
    static const std::vector<Golden> list = {
        {"torch", 0, {16, 16, 16, 17, 16, 16, 15, 15, 15, 14, 14, 14, 14, 15,
                      15, 14, 13, 12, 12, 12, 12, 13, 13, 13, 13, 14, 14}},
        {"apex", 0, {16, 16, 16, 17, 16, 16, 15, 15, 15, 14, 14, 14, 14, 15,
                     15, 14, 13, 12, 12, 12, 12, 13, 13, 13, 13, 14, 14}},
        {"megatron", 0, {16, 16, 16, 17, 17, 17, 16, 16, 16, 15, 15, 15, 15, 16,
                         16, 16, 15, 14, 14, 14, 14, 15, 15, 15, 15, 16, 16}},
        {"deepspeed", 0, {16, 16, 16, 16, 16, 16, 15, 15, 15, 14, 14, 14, 14, 14,
                          15, 15, 14, 13, 13, 13, 13, 13, 14, 14, 14, 14, 15}},
        {"deepspeed", MP_SCALER_REFILL_ON_GOOD_STEP, {16, 16, 16, 16, 16, 16, 16, 16, 16,
                                                      16, 16, 16, 16, 16, 17, 17, 16, 15,
                                                      15, 15, 15, 15, 16, 16, 16, 16, 17}},
    };
    return list;
}

mp_scaler_desc golden_desc(const Golden& golden) {
    mp_scaler_desc desc = MP_SCALER_DESC_INIT;
    EXPECT_TRUE(succeeded(mp_scaler_desc_preset(&desc, sizeof desc, golden.preset)));
    desc.init_scale = 65536;
    desc.growth_interval = 4;
    desc.flags |= golden.flags;
    return desc;
}

bool is_good(std::size_t step) {
    return step != 5 && step != 7 && step != 10 && step != 16 && step != 17 && step != 18;
}

} // namespace

TEST(Scaler, GoldenSequences) {
    const Context context = make_context();
    for (const Golden& golden : goldens()) {
        const Scaler scaler = make_scaler(context, golden_desc(golden));
        for (std::size_t step = 1; step <= golden.log2_scale.size(); ++step) {
            feed(scaler, is_good(step));
            double scale = 0;
            MP_OK(mp_scaler_get_scale(scaler, nullptr, &scale));
            ASSERT_EQ(scale, std::ldexp(1.0, golden.log2_scale[step - 1]))
                << golden.preset << " step " << step;
        }
        const mp_scaler_state state = state_of(scaler);
        EXPECT_EQ(state.overflow_steps, 6);
        EXPECT_EQ(state.good_steps, 21);
    }
}

TEST(Scaler, SavedInTheMiddleItGoesOnTheSame) {
    const Context context = make_context();
    for (const Golden& golden : goldens()) {
        for (std::size_t stop = 1; stop < golden.log2_scale.size(); ++stop) {
            Scaler scaler = make_scaler(context, golden_desc(golden));
            for (std::size_t step = 1; step <= golden.log2_scale.size(); ++step) {
                feed(scaler, is_good(step));
                if (step == stop) {
                    const mp_scaler_state saved = state_of(scaler);
                    scaler = make_scaler(context, golden_desc(golden));
                    MP_OK(mp_scaler_set_state(scaler, nullptr, &saved));
                }
            }
            ASSERT_EQ(state_of(scaler).scale, std::ldexp(1.0, golden.log2_scale.back()))
                << golden.preset;
        }
    }
}

TEST(Scaler, StaysFinitePositiveAndInsideItsBounds) {
    const Context context = make_context();
    mp_scaler_desc desc = MP_SCALER_DESC_INIT;
    desc.growth_interval = 1;
    const Scaler free = make_scaler(context, desc);
    for (int i = 0; i < 200; ++i) {
        feed(free, true);
    }
    EXPECT_TRUE(std::isfinite(state_of(free).scale));
    for (int i = 0; i < 500; ++i) {
        feed(free, false);
    }
    EXPECT_GT(state_of(free).scale, 0.0);

    desc.min_scale = 1024;
    desc.max_scale = 1 << 18;
    const Scaler bounded = make_scaler(context, desc);
    for (int i = 0; i < 20; ++i) {
        feed(bounded, true);
    }
    EXPECT_EQ(state_of(bounded).scale, 1 << 18);
    for (int i = 0; i < 20; ++i) {
        feed(bounded, false);
    }
    EXPECT_EQ(state_of(bounded).scale, 1024);
}

TEST(Scaler, DeepSpeedFailsAtTheMinimum) {
    const Context context = make_context();
    mp_scaler_desc desc = MP_SCALER_DESC_INIT;
    MP_OK(mp_scaler_desc_preset(&desc, sizeof desc, "deepspeed"));
    desc.init_scale = 2;
    desc.hysteresis = 1;
    const Scaler scaler = make_scaler(context, desc);
    mp_scaler_state state{};
    state.struct_size = sizeof state;
    feed(scaler, false);
    MP_OK(mp_scaler_get_state(scaler, nullptr, &state));
    EXPECT_EQ(state.scale, 1.0);
    feed(scaler, false);
    MP_FAILS(mp_scaler_get_state(scaler, nullptr, &state), MP_STATUS_BAD_STATE, "minimum",
             "learning rate");
    EXPECT_EQ(state.scale, 1.0);
}

TEST(Scaler, StaticAndNone) {
    const Context context = make_context();
    mp_scaler_desc desc = MP_SCALER_DESC_INIT;
    desc.kind = MP_SCALER_STATIC;
    desc.init_scale = 128;
    const Scaler fixed = make_scaler(context, desc);
    feed(fixed, false);
    EXPECT_EQ(state_of(fixed).scale, 128);
    EXPECT_EQ(state_of(fixed).overflow_steps, 1);

    const Recipe recipe = make_recipe(context, "bf16_mixed");
    mp_scaler* raw = nullptr;
    MP_OK(mp_scaler_create_from_recipe(context, recipe, &raw));
    const Scaler none(raw);
    feed(none, false);
    EXPECT_EQ(state_of(none).scale, 1.0);
    EXPECT_EQ(state_of(none).overflow_steps, 0);
}

TEST(Scaler, CheckSeesOneBadElementAnywhereInEveryType) {
    const Context context = make_context();
    for (const int32_t dtype : {MP_DTYPE_FP32, MP_DTYPE_FP16, MP_DTYPE_BF16}) {
        for (const int64_t bad : {-1, 0, 16383, 16384, 40000}) {
            for (const float poison :
                 {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                  std::numeric_limits<float>::quiet_NaN()}) {
                std::vector<float> values = numbers(40001, 3);
                if (bad >= 0) {
                    values[static_cast<std::size_t>(bad)] = poison;
                }
                const Tensor tensor = make_tensor(context, dtype, {40001}, values);
                void* data = data_of(tensor);
                const Scaler scaler = make_scaler(context, MP_SCALER_DESC_INIT);
                const void* const grads[2] = {data, nullptr};
                const int32_t dtypes[2] = {dtype, dtype};
                const int64_t counts[2] = {40001, 0};
                MP_OK(mp_scaler_check_pointers(scaler, nullptr, 2, grads, dtypes, counts));
                ASSERT_EQ(state_of(scaler).found_inf, bad >= 0 ? 1U : 0U)
                    << "dtype " << dtype << " element " << bad;
            }
        }
    }
}

TEST(Scaler, WrongDescriptors) {
    const Context context = make_context();
    using Desc = mp_scaler_desc;
    mp_scaler* scaler = nullptr;
    const auto create = [&](auto field, auto value) {
        const Desc desc = with(Desc MP_SCALER_DESC_INIT, field, value);
        return mp_scaler_create(context, &desc, &scaler);
    };
    expect_refused<MP_STATUS_INVALID_ARGUMENT>({
        {"growth 0.5", create(&Desc::growth_factor, 0.5), {"growth_factor", "0.5"}},
        {"backoff 2", create(&Desc::backoff_factor, 2), {"backoff_factor"}},
        {"first scale NaN", create(&Desc::init_scale, NAN), {"init_scale"}},
        {"first scale -4", create(&Desc::init_scale, -4), {"init_scale"}},
        {"grows every -1", create(&Desc::growth_interval, -1), {"growth_interval"}},
        {"hysteresis -1", create(&Desc::hysteresis, -1), {"hysteresis"}},
        {"offset 2", create(&Desc::count_offset, 2), {"count_offset"}},
        {"least above first", create(&Desc::min_scale, 1e9), {"min_scale"}},
        {"largest below first", create(&Desc::max_scale, 2), {"max_scale"}},
        {"unknown kind", create(&Desc::kind, 9), {"kind"}},
        {"unknown flags", create(&Desc::flags, 64), {"flags"}},
    });
    mp_scaler_desc desc = MP_SCALER_DESC_INIT;
    MP_FAILS(mp_scaler_desc_preset(&desc, sizeof desc, "keras"), MP_STATUS_UNKNOWN_NAME, "keras",
             "megatron");
    const Scaler good = make_scaler(context, MP_SCALER_DESC_INIT);
    mp_scaler_state state = state_of(good);
    state.scale = 0;
    MP_FAILS(mp_scaler_set_state(good, nullptr, &state), MP_STATUS_INVALID_ARGUMENT, "scale");
    desc = MP_SCALER_DESC_INIT;
    desc.init_scale = 128.0;
    desc.min_scale = 2.0;
    desc.max_scale = 1024.0;
    for (const int32_t kind : {MP_SCALER_DYNAMIC, MP_SCALER_STATIC, MP_SCALER_NONE}) {
        desc.kind = kind;
        const Scaler one = make_scaler(context, desc);
        const mp_scaler_state own = state_of(one);
        MP_OK(mp_scaler_set_state(one, nullptr, &own));
        for (const double scale : {1.5 * own.scale, 2048.0, 0.5}) { // in no scaler of these
            state = own;
            state.scale = scale;
            MP_FAILS(mp_scaler_set_state(one, nullptr, &state), MP_STATUS_INVALID_ARGUMENT,
                     "cannot come to it");
        }
    }
    const int32_t dtype = MP_DTYPE_INT8;
    const int64_t count = 1;
    const float value = 1;
    const void* pointer = &value;
    MP_FAILS(mp_scaler_check_pointers(good, nullptr, 1, &pointer, &dtype, &count),
             MP_STATUS_INVALID_DTYPE, "int8");
    MP_FAILS(mp_scaler_check_pointers(good, nullptr, -1, &pointer, &dtype, &count),
             MP_STATUS_INVALID_ARGUMENT, "-1");
}
