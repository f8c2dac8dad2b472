// SPDX-License-Identifier: Apache-2.0
// mixedprec.hpp with exceptions: steps in parts, and steps on the program's own arrays.
#include "cpp.hpp"

#include <algorithm>

namespace {

// Three parameters, whose gradients differ.
struct Three {
    explicit Three(const mp::Context& context, std::uint32_t flags = 0)
        : optimizer(optimizer_of(context, mp::Recipe::create(context, "fp32"), flags)) {
        for (const char* name : {"a", "b", "c"}) {
            weights.push_back(mp::Tensor::from(context, ramp(12), {12}));
            optimizer.add_param(name, weights.back());
        }
    }
    static std::vector<float> grad(int step, int index) {
        auto values = ramp(12);
        std::rotate(values.begin(), values.begin() + 3 * step + index, values.end());
        return values;
    }
    void write_grads(int step) {
        for (int i = 0; i < 3; ++i)
            optimizer.grad(i).write(grad(step, i));
    }
    std::vector<float> values() const {
        std::vector<float> all;
        for (const mp::Tensor& weight : weights) {
            const auto one = weight.to_vector<float>();
            all.insert(all.end(), one.begin(), one.end());
        }
        return all;
    }
    mp::Optimizer optimizer;
    std::vector<mp::Tensor> weights;
};

} // namespace

TEST(Cpp, AStepInPartsHasTheWeightsOfAWholeOne) {
    const auto context = mp::Context::create();
    Three whole(context), parts(context), given(context, MP_OPTIMIZER_GRADS_GIVEN);
    for (int step = 0; step < 2; ++step) {
        whole.write_grads(step), parts.write_grads(step);
        whole.optimizer.step();
        parts.optimizer.step_begin(), given.optimizer.step_begin();
        for (const std::int32_t i : {2, 1, 0}) {
            const std::int32_t index[] = {i};
            const auto grad = mp::Tensor::from(context, Three::grad(step, i), {12});
            given.optimizer.step_params(index, {grad});
            if (i > 0) // the last one is the end's
                parts.optimizer.step_params(index);
        }
        parts.optimizer.step_end(), given.optimizer.step_end();
        EXPECT_EQ(parts.values(), whole.values()) << step;
        EXPECT_EQ(given.values(), whole.values()) << step;
    }
    EXPECT_NE(whole.values(), Three(context).values());
    const std::int32_t two[] = {0, 1};
    EXPECT_EQ(status_of([&] { parts.optimizer.step_params(two); }), MP_STATUS_BAD_STATE);
    EXPECT_EQ(status_of([&] { parts.optimizer.step_params(two, {whole.optimizer.grad(0)}); }),
              MP_STATUS_INVALID_ARGUMENT);
}

TEST(Cpp, StepsOnOwnArrays) {
    const auto context = mp::Context::create();
    std::vector<float> p(100, 1.0f), m(100), v(100);
    const std::vector<float> g(100, 0.5f);
    const auto slot = mp::slot(p, g, m, v);
    mp::StepArgs args;
    args.lr = 0.01;
    args.max_grad_norm = 1.0;
    EXPECT_DOUBLE_EQ(mp::step(context, args, slot).grad_norm, 5.0);
    EXPECT_LT(p[0], 1.0f);
    auto p2 = std::vector<float>(100, 1.0f), m2 = std::vector<float>(100),
         v2 = std::vector<float>(100);
    const mp::StepSlot other = mp::slot(p2, g, m2, v2);
    auto plan = mp::StepPlan::create(context, args, mp::span<const mp_step_slot>(&other, 1));
    plan.run();
    EXPECT_EQ(p, p2);
    EXPECT_EQ(plan.stats().step, 1);
    const mp_hyper none = {"beta1", 0.0};
    args.hypers = &none, args.hyper_count = 1, args.max_grad_norm = 0.0;
    plan.set_args(args);
    EXPECT_EQ(plan.args().hyper_count, 1);
    plan.run();
    EXPECT_EQ(m2, g);
    EXPECT_EQ(status_of([&] { return mp::slot(p, g, m, std::vector<float>(3)); }),
              MP_STATUS_INVALID_SHAPE);
    EXPECT_EQ(status_of([&] { return mp::step(context, args, mp::slot(p, p, m, v)); }),
              MP_STATUS_INVALID_ARGUMENT);
}
