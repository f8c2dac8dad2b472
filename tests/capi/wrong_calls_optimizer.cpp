// SPDX-License-Identifier: Apache-2.0
// Wrong calls of optimizers: parameters and groups (optimizer.h), states (optimizer_state.h), and memory that must be nobody
// else's. Nothing is half done.
#include <cmath>
#include <limits>

#include "optimizers.hpp"
#include "wrong_calls.hpp"

using namespace mp_test;

namespace {

// With a group and one parameter.
struct WrongCallsOptimizer : ::testing::Test {
    Context context = make_context();
    Recipe recipe = make_recipe(context, "bf16_pure");
    Optimizer optimizer = make_optimizer(context, recipe);
    Tensor param = tensor(MP_DTYPE_BF16, {4, 4});

    void SetUp() override {
        add_group(optimizer);
        MP_OK(add("p", param));
    }
    // Nothing is half added.
    void TearDown() override {
        int32_t count = 0;
        MP_OK(mp_optimizer_get_param_count(optimizer, &count));
        EXPECT_EQ(count, 1);
    }
    Tensor tensor(int32_t dtype, const std::vector<int64_t>& shape) const {
        return make_tensor(context, dtype, shape);
    }
    mp_status add(const char* name, mp_tensor* weight, mp_tensor* grad = nullptr,
                  mp_tensor* init = nullptr) const {
        return add_param(optimizer, 0, name, weight, grad, init);
    }
};

} // namespace

TEST_F(WrongCallsOptimizer, Parameters) {
    const Optimizer bare = make_optimizer(context, recipe);
    const Tensor fp16 = tensor(MP_DTYPE_FP16, {4, 4}), flat = tensor(MP_DTYPE_BF16, {16});
    const Tensor bytes = tensor(MP_DTYPE_INT8, {4, 4}), other = tensor(MP_DTYPE_BF16, {4, 4});
    expect_refused<MP_STATUS_INVALID_ARGUMENT>({
        {"no group", add_param(bare, 0, "p", param), {"group", "0"}},
        {"the same name", add("p", param), {"already", "'p'"}},
        {"an empty name", add("", param), {"name"}},
        {"its own gradient", add("q", param, param), {"overlaps"}},
    });
    expect_refused<MP_STATUS_NULL_ARGUMENT>({
        {"no name", add(nullptr, param), {"name"}},
        {"no weight", add("q", nullptr), {"param"}},
    });
    expect_refused<MP_STATUS_INVALID_DTYPE>({
        {"a weight of another type", add("q", fp16), {"fp16", "bf16"}},
        {"first numbers in bf16", add("q", param, nullptr, param), {"init_fp32"}},
        {"a gradient in int8", add("q", other, bytes), {"int8"}},
    });
    MP_FAILS(add("q", param, flat), MP_STATUS_INVALID_SHAPE, "[4, 4]", "[16]");
    using Desc = mp_param_desc;
    const auto freeze = [&](mp_tensor* weight, auto... fields) {
        const Desc desc = with(Desc MP_PARAM_DESC_INIT, &Desc::name, "q", &Desc::param, weight,
                               &Desc::flags, MP_PARAM_FROZEN, fields...);
        return mp_optimizer_add_param(optimizer, 0, &desc, nullptr);
    };
    mp_tensor* const gradient = bytes;
    constexpr uint32_t kElsewhere = MP_PARAM_FROZEN | MP_PARAM_NORM_ELSEWHERE;
    expect_refused<MP_STATUS_INVALID_ARGUMENT>({
        {"frozen with a gradient", freeze(other, &Desc::grad, gradient), {"'q' is frozen", "grad"}},
        {"frozen and elsewhere", freeze(other, &Desc::flags, kElsewhere), {"NORM_ELSEWHERE"}},
        {"unknown flags", freeze(other, &Desc::flags, 8u), {"flags"}},
    });
    MP_FAILS(freeze(bytes), MP_STATUS_INVALID_DTYPE, "int8", "codes with scales");
}

TEST_F(WrongCallsOptimizer, GroupsAndStates) {
    using Desc = mp_optimizer_desc;
    using Group = mp_param_group_desc;
    int32_t index = 0;
    mp_tensor* out = nullptr;
    mp_optimizer* raw = nullptr;
    const int32_t unused[] = {0, 3};
    const auto create = [&](auto field, auto value) {
        const Desc desc = with(Desc MP_OPTIMIZER_DESC_INIT, field, value);
        return mp_optimizer_create(context, recipe, &desc, &raw);
    };
    const auto group = [&](auto field, double value) {
        const Group desc = with(Group MP_PARAM_GROUP_DESC_INIT, field, value);
        return mp_optimizer_add_group(optimizer, &desc, &index);
    };
    expect_refused<MP_STATUS_INVALID_ARGUMENT>({
        {"norm -2", create(&Desc::max_grad_norm, -2), {"max_grad_norm"}},
        {"unknown flags", create(&Desc::flags, 1u << 31), {"flags"}},
        {"beta1 1", group(&Group::beta1, 1.0), {"beta1", "1"}},
        {"lr NaN", group(&Group::lr, NAN), {"lr", "nan"}},
        {"group 5", mp_optimizer_set_lr(optimizer, 5, 0.1), {"group", "5"}},
        {"lr -0.1", mp_optimizer_set_lr(optimizer, 0, -0.1), {"lr"}},
        {"parameter 3", mp_optimizer_get_state(optimizer, 3, "param", &out), {"3"}},
        {"step -1", mp_optimizer_set_step(optimizer, nullptr, -1), {"-1"}},
        {"unused 3", mp_optimizer_mark_unused(optimizer, nullptr, unused, 2), {"parameter 3"}},
        {"-1 unused", mp_optimizer_mark_unused(optimizer, nullptr, unused, -1), {"count", "-1"}},
    });
    MP_FAILS(mp_optimizer_get_state(optimizer, 0, "master", &out), MP_STATUS_UNKNOWN_NAME, "master",
             "exp_avg_sq");
}

namespace {

// Parts of one memory: 'a' has 0 to 99 for its weight and 100 to 199 for its gradient. Numbers that steps read are at 3000 and
// 3100.
struct WrongMemoryOfOptimizers : ::testing::Test {
    Context context = make_context();
    Optimizer optimizer = make_optimizer(context, make_recipe(context, "fp32"));
    Tensor memory = make_tensor(context, MP_DTYPE_FP32, {4096});
    Tensor param = piece(0, 100), grad = piece(100, 100);
    Tensor state;

    void SetUp() override {
        add_group(optimizer);
        MP_OK(add("a", param, grad));
        state = state_of(optimizer, 0, "exp_avg");
    }
    Tensor piece(int64_t first, int64_t count) const {
        return wrap_tensor(context, MP_DTYPE_FP32, {count},
                           static_cast<float*>(data_of(memory)) + first);
    }
    mp_status add(const char* name, mp_tensor* weight, mp_tensor* gradient = nullptr) const {
        return add_param(optimizer, 0, name, weight, gradient);
    }
    mp_status lr(mp_tensor* number) const {
        return mp_optimizer_set_lr_tensor(optimizer, -1, number);
    }
    mp_status scale(mp_tensor* number) const {
        return mp_optimizer_set_grad_scale_tensor(optimizer, number);
    }
};

} // namespace

// A step works on all parameters at once: none may be written twice, nor be another's gradient or state.
TEST_F(WrongMemoryOfOptimizers, Parameters) {
    const Tensor own = make_tensor(context, MP_DTYPE_FP32, {100});
    expect_refused<MP_STATUS_INVALID_ARGUMENT>({
        {"a weight twice", add("b", param), {"weight of 'b'", "weight of 'a'"}},
        {"one element of it", add("b", piece(99, 50)), {"'a'"}},
        {"of a gradient", add("b", piece(199, 50)), {"weight of 'b'", "gradient of 'a'"}},
        {"a gradient twice", add("b", piece(200, 100), grad), {"gradient of 'b'"}},
        {"a state", add("b", state), {"weight of 'b'", "states of 'a'"}},
        {"a state as gradient", add("b", own, state), {"gradient of 'b'", "states of 'a'"}},
    });
    int32_t count = 0;
    MP_OK(mp_optimizer_get_param_count(optimizer, &count));
    EXPECT_EQ(count, 1);
    MP_OK(add("b", piece(200, 100)));
}

TEST_F(WrongMemoryOfOptimizers, NumbersThatStepsReadLieInNothingThatTheyWrite) {
    const Tensor in_weight = view_of(memory, 5, {1}), in_grad = view_of(memory, 106, {1});
    expect_refused<MP_STATUS_INVALID_ARGUMENT>({
        {"lr in a weight", lr(in_weight), {"lr overlaps"}},
        {"scale in a weight", scale(in_weight), {"grad_scale overlaps"}},
        {"lr in a gradient", lr(in_grad), {"lr overlaps"}},
        {"scale in a gradient", scale(in_grad), {"grad_scale overlaps"}},
        {"lr in a state", lr(view_of(state, 7, {1})), {"lr overlaps the states of 'a'"}},
    });
    // The other way round: the number is there first.
    MP_OK(mp_optimizer_set_lr_tensor(optimizer, 0, view_of(memory, 3000, {1})));
    MP_OK(scale(view_of(memory, 3100, {1})));
    expect_refused<MP_STATUS_INVALID_ARGUMENT>({
        {"a weight over lr", add("b", view_of(memory, 2990, {8, 2})), {"'b' overlaps the"}},
        {"a weight over the scale", add("b", view_of(memory, 3095, {8, 2})), {"'b' overlaps the"}},
    });
    MP_OK(mp_optimizer_step(optimizer, nullptr, nullptr));
}

TEST_F(WrongMemoryOfOptimizers, StatesThatNoStepCouldLeave) {
    const auto write = [&](const char* name, float value) {
        std::vector<float> values(100, 1.0F);
        values[9] = value;
        return mp_optimizer_write_state(optimizer, nullptr, 0, name,
                                        make_tensor(context, MP_DTYPE_FP32, {100}, values));
    };
    MP_FAILS(write("exp_avg_sq", -1.0F), MP_STATUS_INVALID_ARGUMENT, "element 9", "exp_avg_sq",
             "'a'", "not negative");
    for (const char* name : {"exp_avg", "exp_avg_sq", "fp32_param"}) {
        for (const float value : {NAN, std::numeric_limits<float>::infinity()}) {
            MP_FAILS(write(name, value), MP_STATUS_INVALID_ARGUMENT, "finite");
        }
    }
    MP_OK(write("exp_avg", -1.0F));
    MP_OK(write("exp_avg_sq", 0.0F));
}
