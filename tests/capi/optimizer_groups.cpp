// SPDX-License-Identifier: Apache-2.0
// What belongs to a group of parameters: its own count of steps, a rule, a learning rate in device memory; and the gradients'
// divisor in device memory.
#include <cmath>
#include <limits>

#include "optimizers.hpp"

using namespace mp_test;

namespace {

constexpr int64_t kCount = 300;

mp_param_group_desc group_desc() {
    mp_param_group_desc desc = MP_PARAM_GROUP_DESC_INIT;
    desc.weight_decay = 0.1;
    return desc;
}

// fp32 parameters, one in each group, all with the same first values and gradients.
struct Groups {
    Context context = make_context();
    Recipe recipe = make_recipe(context, "fp32");
    Optimizer optimizer;
    std::vector<Tensor> params;
    std::vector<Tensor> grads;

    explicit Groups(int32_t count, uint32_t flags = 0) {
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.flags = flags;
        optimizer = make_optimizer(context, recipe, desc);
        for (int32_t i = 0; i < count; ++i) {
            add();
        }
    }
    void add() {
        const mp_param_group_desc desc = group_desc();
        int32_t group = -1;
        EXPECT_TRUE(succeeded(mp_optimizer_add_group(optimizer, &desc, &group)));
        params.push_back(make_tensor(context, MP_DTYPE_FP32, {kCount}, numbers(kCount, 1)));
        grads.push_back(make_tensor(context, MP_DTYPE_FP32, {kCount}));
        const std::string name = 'p' + std::to_string(group);
        EXPECT_TRUE(
            succeeded(add_param(optimizer, group, name.c_str(), params.back(), grads.back())));
    }
    void write_grads(uint64_t seed, float scale = 1.0F) {
        std::vector<float> values = numbers(kCount, seed, scale);
        for (const Tensor& grad : grads) {
            EXPECT_TRUE(succeeded(
                mp_tensor_write(grad, nullptr, values.data(), values.size() * sizeof(float))));
        }
    }
    void step() { EXPECT_TRUE(succeeded(mp_optimizer_step(optimizer, nullptr, nullptr))); }
    void step(uint64_t seed) {
        write_grads(seed);
        step();
    }
    int64_t t(int32_t group) {
        int64_t value = -1;
        EXPECT_TRUE(succeeded(mp_optimizer_get_group_step(optimizer, nullptr, group, &value)));
        return value;
    }
    int64_t steps_taken() { return stats_of(optimizer).step; }
    std::vector<float> values(std::size_t group) { return values_of(context, params[group]); }
};

Tensor scalar(mp_context* context, float value) {
    return make_tensor(context, MP_DTYPE_FP32, {1}, {value});
}

void set(mp_tensor* tensor, float value) {
    EXPECT_TRUE(succeeded(mp_tensor_write(tensor, nullptr, &value, sizeof value)));
}

} // namespace

// Bias correction by the steps of the whole optimizer would make the first step of a late group too large by
// (1 - 0.9) / sqrt(1 - 0.999) over their values at t = 4.
TEST(OptimizerGroups, AGroupThatWasOffOrCameLateHasItsOwnBiasCorrection) {
    Groups run(2);
    MP_OK(mp_optimizer_set_enabled(run.optimizer, 1, 0));
    for (uint64_t seed = 1; seed <= 3; ++seed) {
        run.step(seed);
    }
    EXPECT_EQ(run.t(0), 3);
    EXPECT_EQ(run.t(1), 0);
    MP_OK(mp_optimizer_set_enabled(run.optimizer, 1, 1));
    run.add();
    EXPECT_EQ(run.t(2), 0); // before any step knows of it
    run.step(4);
    run.step(5);
    EXPECT_EQ(run.steps_taken(), 5);
    EXPECT_EQ(run.t(0), 5);
    EXPECT_EQ(run.t(1), 2);
    EXPECT_EQ(run.t(2), 2);

    Groups all(1);
    for (uint64_t seed = 1; seed <= 5; ++seed) {
        all.step(seed);
    }
    EXPECT_EQ(run.values(0), all.values(0));
    Groups late(1);
    late.step(4);
    late.step(5);
    EXPECT_EQ(run.values(1), late.values(0));
    EXPECT_EQ(run.values(2), late.values(0));
    EXPECT_NE(run.values(0), run.values(1));
}

TEST(OptimizerGroups, ASkippedStepLeavesEveryCount) {
    Groups run(2, MP_OPTIMIZER_CHECK_FINITE);
    MP_OK(mp_optimizer_set_group_step(run.optimizer, nullptr, 1, 40));
    run.step(1);
    run.write_grads(2, std::numeric_limits<float>::infinity());
    run.step();
    EXPECT_EQ(run.steps_taken(), 1);
    EXPECT_EQ(run.t(0), 1);
    EXPECT_EQ(run.t(1), 41);
}

TEST(OptimizerGroups, CountsCanBeSetForAllAndForOne) {
    Groups run(3);
    MP_OK(mp_optimizer_set_step(run.optimizer, nullptr, 100));
    MP_OK(mp_optimizer_set_group_step(run.optimizer, nullptr, 1, 7));
    EXPECT_EQ(run.steps_taken(), 100);
    EXPECT_EQ(run.t(0), 100);
    EXPECT_EQ(run.t(1), 7);
    run.step(1);
    EXPECT_EQ(run.t(0), 101);
    EXPECT_EQ(run.t(1), 8);
    EXPECT_EQ(run.t(2), 101);
    EXPECT_EQ(run.values(0), run.values(2));
    EXPECT_NE(run.values(0), run.values(1)); // another correction
    int64_t value = 0;
    MP_FAILS(mp_optimizer_get_group_step(run.optimizer, nullptr, 3, &value),
             MP_STATUS_INVALID_ARGUMENT, "group is 3");
    MP_FAILS(mp_optimizer_get_group_step(run.optimizer, nullptr, -1, &value),
             MP_STATUS_INVALID_ARGUMENT, "group is -1");
    MP_FAILS(mp_optimizer_get_group_step(run.optimizer, nullptr, 0, nullptr),
             MP_STATUS_NULL_ARGUMENT, "step");
    MP_FAILS(mp_optimizer_set_group_step(run.optimizer, nullptr, 0, -1), MP_STATUS_INVALID_ARGUMENT,
             "-1");
    MP_FAILS(mp_optimizer_set_group_step(run.optimizer, nullptr, 9, 1), MP_STATUS_INVALID_ARGUMENT,
             "group is 9");
}

// A schedule in device memory against the same schedule by calls. An fp32 number is what the tensor can hold.
TEST(OptimizerGroups, LearningRateFromATensor) {
    Groups by_call(2);
    Groups by_tensor(2);
    const Tensor lr = scalar(by_tensor.context, -1.0F);
    MP_OK(mp_optimizer_set_lr_tensor(by_tensor.optimizer, 1, lr));
    for (uint64_t seed = 1; seed <= 4; ++seed) {
        const float value = 0x1p-8F / static_cast<float>(seed);
        MP_OK(mp_optimizer_set_lr(by_call.optimizer, 1, static_cast<double>(value)));
        set(lr, value);
        by_call.step(seed);
        by_tensor.step(seed);
    }
    EXPECT_EQ(by_call.values(0), by_tensor.values(0));
    EXPECT_EQ(by_call.values(1), by_tensor.values(1));
    EXPECT_NE(by_call.values(1), by_call.values(0));
    // A number replaces the tensor, and without one the group's own number is back.
    set(lr, 1e6F);
    for (const bool by_number : {true, false}) {
        MP_OK(mp_optimizer_set_lr_tensor(by_tensor.optimizer, -1, lr));
        if (by_number) {
            MP_OK(mp_optimizer_set_lr(by_tensor.optimizer, -1, 0.0));
        } else {
            MP_OK(mp_optimizer_set_lr_tensor(by_tensor.optimizer, -1, nullptr));
        }
        const std::vector<float> before = by_tensor.values(1);
        by_tensor.step(9);
        EXPECT_EQ(by_tensor.values(1), before);
    }
}

// The optimizer keeps the tensor: the caller may drop it.
TEST(OptimizerGroups, GradientsDividedByATensor) {
    Groups plain(1, MP_OPTIMIZER_CHECK_FINITE);
    Groups divided(1, MP_OPTIMIZER_CHECK_FINITE);
    {
        const Tensor scale = scalar(divided.context, 8.0F);
        MP_OK(mp_optimizer_set_grad_scale_tensor(divided.optimizer, scale));
    }
    for (uint64_t seed = 1; seed <= 3; ++seed) {
        plain.step(seed);
        divided.write_grads(seed, 8.0F);
        divided.step();
    }
    EXPECT_EQ(plain.values(0), divided.values(0));
    const mp_optimizer_stats a = stats_of(plain.optimizer), b = stats_of(divided.optimizer);
    EXPECT_EQ(a.grad_norm, b.grad_norm);
    EXPECT_EQ(b.grad_mul, 0.125);
    MP_OK(mp_optimizer_set_grad_scale_tensor(divided.optimizer, nullptr));
    plain.step(4);
    divided.step(4);
    EXPECT_EQ(plain.values(0), divided.values(0));
}

TEST(OptimizerGroups, WrongScalars) {
    Groups run(1);
    const Tensor two = make_tensor(run.context, MP_DTYPE_FP32, {2});
    const Tensor narrow = make_tensor(run.context, MP_DTYPE_BF16, {1});
    const Tensor good = scalar(run.context, 1.0F);
    MP_FAILS(mp_optimizer_set_lr_tensor(run.optimizer, 0, two), MP_STATUS_INVALID_SHAPE, "lr",
             "[2]", "one element");
    MP_FAILS(mp_optimizer_set_lr_tensor(run.optimizer, 0, narrow), MP_STATUS_INVALID_DTYPE, "lr",
             "bf16", "fp32");
    MP_FAILS(mp_optimizer_set_lr_tensor(run.optimizer, 1, good), MP_STATUS_INVALID_ARGUMENT,
             "group is 1");
    MP_FAILS(mp_optimizer_set_lr_tensor(nullptr, 0, good), MP_STATUS_NULL_ARGUMENT, "optimizer");
    MP_FAILS(mp_optimizer_set_grad_scale_tensor(run.optimizer, two), MP_STATUS_INVALID_SHAPE,
             "grad_scale", "[2]");
    MP_FAILS(mp_optimizer_set_grad_scale_tensor(run.optimizer, narrow), MP_STATUS_INVALID_DTYPE,
             "grad_scale", "bf16");
    MP_FAILS(mp_optimizer_set_grad_scale_tensor(nullptr, good), MP_STATUS_NULL_ARGUMENT,
             "optimizer");
    const std::vector<float> before = run.values(0);
    run.step(1); // with what was there before
    EXPECT_NE(run.values(0), before);
}

// The same two numbers of a step on pointers.
TEST(OptimizerGroups, ScalarsOfAStepOnPointers) {
    const Context context = make_context();
    std::vector<std::vector<float>> results;
    for (const bool by_pointer : {false, true}) {
        std::vector<float> p = numbers(kCount, 1);
        std::vector<float> g = numbers(kCount, 2);
        std::vector<float> m(kCount);
        std::vector<float> v(kCount);
        mp_step_slot slot{};
        slot.struct_size = sizeof slot;
        slot.count = kCount;
        slot.param.data = p.data();
        slot.grad.data = g.data();
        slot.states[0].data = m.data();
        slot.states[1].data = v.data();
        slot.param.dtype = slot.grad.dtype = MP_DTYPE_FP32;
        slot.states[0].dtype = slot.states[1].dtype = MP_DTYPE_FP32;
        const float lr = 0x1p-7F;
        const float scale = 16.0F;
        mp_step_args args = MP_STEP_ARGS_INIT;
        args.lr = by_pointer ? 123.0 : static_cast<double>(lr);
        args.grad_scale = by_pointer ? 456.0 : static_cast<double>(scale);
        args.lr_pointer = by_pointer ? &lr : nullptr;
        args.grad_scale_pointer = by_pointer ? &scale : nullptr;
        MP_OK(mp_optimizer_step_pointers(context, nullptr, &args, &slot, 1, nullptr, nullptr));
        results.push_back(p);
        results.push_back(m);
        args.lr_pointer = reinterpret_cast<const float*>(reinterpret_cast<const char*>(&lr) + 1);
        MP_FAILS(mp_optimizer_step_pointers(context, nullptr, &args, &slot, 1, nullptr, nullptr),
                 MP_STATUS_INVALID_ARGUMENT, "lr_pointer", "aligned");
    }
    EXPECT_EQ(results[0], results[2]);
    EXPECT_EQ(results[1], results[3]);
    EXPECT_NE(results[0], numbers(kCount, 1));
}

TEST(OptimizerGroups, HaveARuleEach) {
    Groups all(1);
    mp_param_group_desc desc = MP_PARAM_GROUP_DESC_INIT; // Lion's own: lr 1e-4, betas 0.9 and 0.99
    desc.rule = MP_RULE_LION;
    desc.weight_decay = 0.1;
    int32_t group = -1;
    MP_OK(mp_optimizer_add_group(all.optimizer, &desc, &group));
    const Tensor param = make_tensor(all.context, MP_DTYPE_FP32, {2}, {1.0F, -2.0F});
    const Tensor grad = make_tensor(all.context, MP_DTYPE_FP32, {2}, {3.0F, -1e-20F});
    mp_param_desc of_param = MP_PARAM_DESC_INIT;
    of_param.name = "lion";
    of_param.param = param;
    of_param.grad = grad;
    int32_t index = -1;
    MP_OK(mp_optimizer_add_param(all.optimizer, group, &of_param, &index));
    all.step();
    const std::vector<float> after = values_of(all.context, param);
    EXPECT_FLOAT_EQ(after[0], static_cast<float>(1.0 - 1e-4 * (1.0 + 0.1)));
    EXPECT_FLOAT_EQ(after[1], static_cast<float>(-2.0 + 1e-4 * (1.0 + 0.2)));
    mp_tensor* state = nullptr;
    MP_OK(mp_optimizer_get_state(all.optimizer, index, "exp_avg", &state));
    EXPECT_FLOAT_EQ(values_of(all.context, Tensor(state))[0], 0.03F);
    MP_FAILS(mp_optimizer_get_state(all.optimizer, index, "exp_avg_sq", &state),
             MP_STATUS_UNKNOWN_NAME, "it has: param, grad, exp_avg");
    mp_memory_report report{};
    report.struct_size = sizeof report;
    MP_OK(mp_optimizer_get_memory(all.optimizer, &report));
    EXPECT_EQ(report.state_bytes[MP_STATE_EXP_AVG], 4 * (kCount + 2));
    EXPECT_EQ(report.state_bytes[MP_STATE_EXP_AVG_SQ], 4 * kCount);
}

TEST(OptimizerGroups, RefuseARuleThatIsNone) {
    Groups all(1);
    mp_param_group_desc desc = MP_PARAM_GROUP_DESC_INIT;
    int32_t group = -1;
    for (const int32_t rule : {-1, 3, 1 << 30}) {
        desc.rule = rule;
        MP_FAILS(mp_optimizer_add_group(all.optimizer, &desc, &group), MP_STATUS_INVALID_ARGUMENT,
                 "MP_RULE_");
    }
    desc.rule = MP_RULE_LION;
    desc.eps = 1e-6;
    MP_FAILS(mp_optimizer_add_group(all.optimizer, &desc, &group), MP_STATUS_INVALID_ARGUMENT,
             "no eps");
    for (const double other : {1e-300, 1e-9, 1.01e-8, 1e-7, 1.0, 1e300}) {
        desc.eps = other;
        MP_FAILS(mp_optimizer_add_group(all.optimizer, &desc, &group), MP_STATUS_INVALID_ARGUMENT,
                 "no eps");
    }
    desc.eps = 1e-8;
    desc.flags |= MP_RULE_NO_BIAS_CORRECTION;
    MP_FAILS(mp_optimizer_add_group(all.optimizer, &desc, &group), MP_STATUS_INVALID_ARGUMENT,
             "no bias correction");
}

// Programs that keep their hyperparameters in single precision give every number rounded, also one that a rule lacks.
TEST(OptimizerGroups, ADefaultOfSinglePrecisionIsADefault) {
    Groups all(1);
    for (const double eps : {0.0, 1e-8, static_cast<double>(1e-8F)}) {
        mp_param_group_desc desc = MP_PARAM_GROUP_DESC_INIT;
        desc.lr = static_cast<double>(1e-4F);
        desc.beta1 = static_cast<double>(0.9F);
        desc.beta2 = static_cast<double>(0.99F);
        desc.eps = eps;
        desc.rule = MP_RULE_LION;
        MP_OK(mp_optimizer_add_group(all.optimizer, &desc, nullptr));

        std::vector<float> p = numbers(kCount, 1);
        std::vector<float> g = numbers(kCount, 2);
        std::vector<float> m(kCount);
        mp_step_slot slot = MP_STEP_SLOT_INIT;
        slot.count = kCount;
        slot.param.data = p.data();
        slot.grad.data = g.data();
        slot.states[0].data = m.data();
        slot.param.dtype = slot.grad.dtype = slot.states[0].dtype = MP_DTYPE_FP32;
        mp_step_args args = MP_STEP_ARGS_INIT;
        args.lr = 1e-3;
        args.rule = MP_RULE_LION;
        args.eps = eps;
        MP_OK(mp_optimizer_step_pointers(all.context, nullptr, &args, &slot, 1, nullptr, nullptr));
        mp_step_plan* raw = nullptr;
        MP_OK(mp_step_plan_create(all.context, &args, &slot, 1, &raw));
        const StepPlan plan(raw);
        MP_OK(mp_step_plan_set_args(plan, nullptr, &args));
    }
}
