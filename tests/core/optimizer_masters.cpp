// SPDX-License-Identifier: Apache-2.0
// Master weights of the optimizer: remainders, and weights that are written from outside.
#include <array>

#include "numerics/remainder.hpp"
#include "optimizer_scaled.hpp"

using namespace mp;
using namespace mp::test;

namespace {

class OptimizerMasters : public ScaledOptimizer {};

TEST_P(OptimizerMasters, BytesOfARemainder) {
    const recipe::Recipe& recipe = recipe::find_preset("bf16_pure_remainder").recipe;
    optim::Optimizer optimizer(context(), recipe, {});
    optimizer.groups().add(numerics::usual_hyper(numerics::RuleId::adamw));
    add(optimizer, "w", recipe.weight, matrix(10, 10));
    EXPECT_EQ(optimizer.parameters().memory().weight, 200);
    EXPECT_EQ(optimizer.parameters().memory().master, 200);
    const std::array<int64_t, 1> counts = {100};
    EXPECT_EQ(optim::planned_memory(recipe, counts).total(),
              optimizer.parameters().memory().total());
}

// bf16 weights with remainders and fp32 weights, the same gradients: the same weights, to the bit.
TEST_P(OptimizerMasters, ARemainderIsAnFp32Weight) {
    const Shape shape = matrix(30, 33);
    optim::Optimizer split(context(), recipe::find_preset("bf16_pure_remainder").recipe, {});
    optim::Optimizer exact(context(), recipe::find_preset("bf16_mixed").recipe, {});
    for (optim::Optimizer* each : {&split, &exact}) {
        each->groups().add(numerics::usual_hyper(numerics::RuleId::adamw));
        add(*each, "w", each->recipe().weight, shape);
        for (int32_t step = 1; step <= 50; ++step) {
            set_grad(*each, 0, 1.0F / static_cast<float>(step));
            each->step(stream(), nullptr);
        }
    }
    const auto* upper = static_cast<const uint16_t*>(split.parameters().state(0, "param")->data());
    const auto* lower = static_cast<const int16_t*>(split.parameters().state(0, "master")->data());
    const auto* expected = static_cast<const float*>(exact.parameters().state(0, "param")->data());
    for (int64_t i = 0; i < shape.count(); ++i) {
        EXPECT_EQ(numerics::join_master(upper[i], lower[i]), expected[i]) << i;
    }
}

// A weight written from outside, and the next step from there: with the call it moves on from the new
// value, without it it would jump back.
TEST_P(OptimizerMasters, MasterWeightsFollowWhatTheCallerWrote) {
    for (const char* name : {"bf16_mixed_dual", "bf16_pure_remainder", "bf16_pure_kahan"}) {
        SCOPED_TRACE(name);
        const recipe::Recipe& recipe = recipe::find_preset(name).recipe;
        optim::Optimizer optimizer(context(), recipe, {});
        optimizer.groups().add(numerics::usual_hyper(numerics::RuleId::adamw));
        add(optimizer, "w", recipe.weight, matrix(4, 8));
        set_grad(optimizer, 0, 1.0F);
        optimizer.step(stream(), nullptr);
        const auto param = optimizer.parameters().state(0, "param");
        cast_tensor(stream(), wave(matrix(4, 8), 8.0F)->ref(), param->ref());
        const std::vector<float> written = values(*param);
        optimizer.parameters().sync_master(stream(), -1);
        optimizer.step(stream(), nullptr);
        const std::vector<float> after = values(*param);
        for (std::size_t i = 0; i < after.size(); ++i) {
            // A step of lr 1e-3, and what rounding to bf16 moves.
            EXPECT_NEAR(after[i], written[i], 0.002 + 0.01 * std::fabs(written[i])) << i;
        }
    }
    optim::Optimizer scaled(context(), level(3), {});
    scaled.groups().add(numerics::usual_hyper(numerics::RuleId::adamw));
    add(scaled, "w", level(3).weight, matrix(4, 8));
    quant::quantize_tensor(stream(), *wave(matrix(4, 8), 8.0F),
                           *scaled.parameters().state(0, "param"), nullptr);
    scaled.parameters().sync_master(stream(), 0);
    EXPECT_EQ(values(*scaled.parameters().state(0, "master")),
              values(*scaled.parameters().state(0, "param")));
    EXPECT_THROW(scaled.parameters().sync_master(stream(), 1), Error);
}

INSTANTIATE_TEST_SUITE_P(Backends, OptimizerMasters, ::testing::Values("reference", "host"),
                         [](const auto& choice) { return std::string(choice.param); });

} // namespace
