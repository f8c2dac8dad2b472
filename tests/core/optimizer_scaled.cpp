// SPDX-License-Identifier: Apache-2.0
// The optimizer with scaled states: MS-AMP's levels, moments in blocks, what is kept in which type and bytes, and what is
// refused.
#include "optimizer_scaled.hpp"

#include <array>
#include <cstring>

using namespace mp;
using namespace mp::test;

namespace {

// Bytes for each parameter of a linear layer: 11, 6, and 1 + 1 + 5.
TEST_P(ScaledOptimizer, LevelsHaveTheirTypesAndBytes) {
    constexpr std::array<int64_t, 3> kBytes = {11, 6, 7};
    constexpr std::array<int64_t, 3> kScales = {2, 4, 5};
    const Shape shape = matrix(48, 64);
    for (int32_t number = 1; number <= 3; ++number) {
        const recipe::Recipe recipe = level(number);
        optim::Optimizer optimizer(context(), recipe, {});
        optimizer.groups().add(numerics::usual_hyper(numerics::RuleId::adamw));
        add(optimizer, "w", recipe.weight, shape);
        EXPECT_EQ(optim::format_of(*optimizer.parameters().state(0, "param")), recipe.weight);
        EXPECT_EQ(optim::format_of(*optimizer.parameters().state(0, "grad")), recipe.grad);
        EXPECT_EQ(optim::format_of(*optimizer.parameters().state(0, "exp_avg")),
                  recipe.state(numerics::StateId::exp_avg).format);
        EXPECT_EQ(optim::format_of(*optimizer.parameters().state(0, "exp_avg_sq")),
                  recipe.state(numerics::StateId::exp_avg_sq).format);
        if (number == 3) {
            EXPECT_EQ(optim::format_of(*optimizer.parameters().state(0, "master")), recipe.master);
        }
        const std::size_t at = static_cast<std::size_t>(number) - 1;
        const optim::MemoryReport report = optimizer.parameters().memory();
        EXPECT_EQ(report.total(), kBytes[at] * shape.count() + 4 * kScales[at]);
        const std::array<int64_t, 1> counts = {shape.count()};
        const optim::MemoryReport planned = optim::planned_memory(recipe, counts);
        EXPECT_EQ(planned.weight, report.weight);
        EXPECT_EQ(planned.master, report.master);
        EXPECT_EQ(planned.grad, report.grad);
        EXPECT_EQ(planned.of(numerics::StateId::exp_avg), report.of(numerics::StateId::exp_avg));
        EXPECT_EQ(planned.of(numerics::StateId::exp_avg_sq),
                  report.of(numerics::StateId::exp_avg_sq));
        EXPECT_EQ(planned.total(), report.total());
    }
}

// Norms and biases stay what they are: fp32, with fp32 gradients and moments.
TEST_P(ScaledOptimizer, Fp32ParametersHaveNoScaledStates) {
    optim::Optimizer optimizer(context(), level(3), {});
    optimizer.groups().add(numerics::usual_hyper(numerics::RuleId::adamw));
    add(optimizer, "bias", FormatId::fp32, matrix(1, 64));
    for (const char* name : {"param", "grad", "exp_avg", "exp_avg_sq"}) {
        EXPECT_EQ(optim::format_of(*optimizer.parameters().state(0, name)), FormatId::fp32) << name;
    }
    EXPECT_THROW((void)optimizer.parameters().state(0, "master"), Error);
    EXPECT_THROW((void)optimizer.parameters().state(0, "exp_avg_scale_inv"), Error);
    EXPECT_EQ(optimizer.parameters().memory().total(), 16 * 64);
}

TEST_P(ScaledOptimizer, EveryWeightChangesAndFollowsFp32) {
    const Shape shape = matrix(40, 30);
    numerics::GroupHyper hyper = numerics::usual_hyper(numerics::RuleId::adamw);
    hyper.lr = 0.05;
    for (int32_t number = 1; number <= 3; ++number) {
        optim::Optimizer exact(context(), recipe::Recipe{}, {});
        exact.groups().add(hyper);
        add(exact, "w", FormatId::fp32, shape);
        const recipe::Recipe recipe = level(number);
        optim::Optimizer optimizer(context(), recipe, {});
        optimizer.groups().add(hyper);
        add(optimizer, "w", recipe.weight, shape);
        const char* weight = number == 3 ? "master" : "param";
        const std::vector<float> before = values(*optimizer.parameters().state(0, weight));
        for (int32_t step = 1; step <= 4; ++step) {
            for (optim::Optimizer* each : {&optimizer, &exact}) {
                set_grad(*each, 0, 1.0F / static_cast<float>(step));
                each->step(stream(), nullptr);
            }
        }
        const std::vector<float> after = values(*optimizer.parameters().state(0, weight));
        const std::vector<float> expected = values(*exact.parameters().state(0, "param"));
        for (std::size_t i = 0; i < after.size(); ++i) {
            EXPECT_NE(after[i], before[i]) << i;
            EXPECT_NEAR(after[i], expected[i], 0.02) << i; // of 0.2 in four steps
        }
    }
}

// The fp8 weight is the fp16 master weight, quantized by its own amax; from the start.
TEST_P(ScaledOptimizer, TheWeightIsTheQuantizedMasterWeight) {
    const recipe::Recipe recipe = level(3);
    const Shape shape = matrix(33, 65);
    optim::Optimizer optimizer(context(), recipe, {});
    optimizer.groups().add(numerics::usual_hyper(numerics::RuleId::adamw));
    add(optimizer, "w", recipe.weight, shape);
    for (int32_t step = 0; step < 3; ++step) {
        const auto wide = make(DType::fp32, shape);
        const auto expected = make(recipe.weight, shape);
        quant::dequantize_tensor(stream(), *optimizer.parameters().state(0, "master"), *wide);
        quant::quantize_tensor(stream(), *wide, *expected, nullptr);
        EXPECT_EQ(values(*expected), values(*optimizer.parameters().state(0, "param"))) << step;
        const auto scale = optimizer.parameters().state(0, "param_scale_inv");
        EXPECT_EQ(*static_cast<float*>(scale->data()),
                  *static_cast<float*>(expected->scales()->scale_inv->data()));
        set_grad(optimizer, 0, 1.0F);
        optimizer.step(stream(), nullptr);
    }
}

// Norm, clipping and the finite check read the gradients as numbers, not as codes.
TEST_P(ScaledOptimizer, NormsAreThoseOfTheNumbers) {
    const recipe::Recipe recipe = level(2);
    optim::OptimizerOptions options;
    options.max_grad_norm = 0.5;
    optim::Optimizer optimizer(context(), recipe, options);
    optimizer.groups().add(numerics::usual_hyper(numerics::RuleId::adamw));
    add(optimizer, "w", recipe.weight, matrix(8, 8));
    set_grad(optimizer, 0, 100.0F);
    double squares = 0.0;
    for (const float g : values(*optimizer.parameters().state(0, "grad"))) {
        squares += static_cast<double>(g) * static_cast<double>(g);
    }
    optimizer.step(stream(), nullptr);
    const numerics::OptimizerState state = optimizer.tables().read_state(stream());
    EXPECT_NEAR(state.grad_norm, std::sqrt(squares), 1e-9 * std::sqrt(squares));
    EXPECT_NEAR(state.grad_mul, 0.5 / (std::sqrt(squares) + 1e-6), 1e-9);
    EXPECT_EQ(state.skip, 0U);

    static_cast<unsigned char*>(optimizer.parameters().state(0, "grad")->data())[5] = 0x7f; // NaN
    const std::vector<float> before = values(*optimizer.parameters().state(0, "param"));
    optimizer.step(stream(), nullptr);
    EXPECT_EQ(optimizer.tables().read_state(stream()).skip, 1U);
    EXPECT_EQ(optimizer.tables().read_state(stream()).step, 1);
    EXPECT_EQ(values(*optimizer.parameters().state(0, "param")), before);
}

TEST_P(ScaledOptimizer, RestoredStatesGoOnWithTheSameBits) {
    const recipe::Recipe recipe = level(3);
    const Shape shape = matrix(16, 20);
    optim::Optimizer first(context(), recipe, {});
    first.groups().add(numerics::usual_hyper(numerics::RuleId::adamw));
    add(first, "w", recipe.weight, shape);
    for (int32_t step = 0; step < 3; ++step) {
        set_grad(first, 0, 1.0F);
        first.step(stream(), nullptr);
    }
    optim::Optimizer second(context(), recipe, {});
    second.groups().add(numerics::usual_hyper(numerics::RuleId::adamw));
    add(second, "w", recipe.weight, shape);
    constexpr std::array<const char*, 8> kNames = {
        "param",      "param_scale_inv",      "exp_avg", "exp_avg_scale_inv",
        "exp_avg_sq", "exp_avg_sq_scale_inv", "master",  "master_scale_inv"};
    for (const char* name : kNames) {
        copy_tensor(stream(), *first.parameters().state(0, name),
                    *second.parameters().state(0, name));
    }
    second.tables().set_step(stream(), 3);
    for (optim::Optimizer* each : {&first, &second}) {
        set_grad(*each, 0, 0.3F);
        each->step(stream(), nullptr);
    }
    for (const char* name : kNames) {
        const auto a = first.parameters().state(0, name);
        EXPECT_EQ(std::memcmp(a->data(), second.parameters().state(0, name)->data(), a->bytes()), 0)
            << name;
    }
}

// ---- moments in blocks -------------------------------------------------------------------------

TEST_P(ScaledOptimizer, MomentsInBlocksHaveTheirBytes) {
    constexpr std::array<std::pair<FormatId, int64_t>, 5> kCases = {
        {{FormatId::block, 4097 + 4 * 17},
         {FormatId::dynamic8, 4097 + 4 * 17},
         {FormatId::dynamic4, 2049 + 4 * 33},
         {FormatId::block128, 4097 + 4 * 33},
         {FormatId::companded8, 4097 + 2 * 129}}};
    for (const auto& [format, bytes] : kCases) {
        SCOPED_TRACE(format_name(format));
        recipe::Recipe recipe;
        recipe.state(numerics::StateId::exp_avg).format = format;
        recipe.state(numerics::StateId::exp_avg_sq).format = format;
        optim::Optimizer optimizer(context(), recipe, {});
        optimizer.groups().add(numerics::usual_hyper(numerics::RuleId::adamw));
        add(optimizer, "w", FormatId::fp32, matrix(1, 4097));
        EXPECT_EQ(optimizer.parameters().memory().of(numerics::StateId::exp_avg), bytes);
        EXPECT_EQ(optimizer.parameters().memory().of(numerics::StateId::exp_avg_sq), bytes);
        EXPECT_EQ(optimizer.parameters().state(0, "exp_avg")->dtype(), dtype_of(format));
        EXPECT_EQ(optimizer.parameters().state(0, "exp_avg_scale_inv")->count(),
                  scale_count(format, 4097));
        add(optimizer, "small", FormatId::fp32, matrix(1, 4095)); // too small for blocks
        EXPECT_EQ(optimizer.parameters().state(1, "exp_avg")->dtype(), DType::fp32);
        EXPECT_EQ(optimizer.parameters().memory().of(numerics::StateId::exp_avg), bytes + 4 * 4095);
        const std::array<int64_t, 2> counts = {4097, 4095};
        EXPECT_EQ(optim::planned_memory(recipe, counts).total(),
                  optimizer.parameters().memory().total());
    }
}

TEST_P(ScaledOptimizer, MomentsInBlocksFollowFp32) {
    const Shape shape = matrix(65, 64);
    numerics::GroupHyper hyper = numerics::usual_hyper(numerics::RuleId::adamw);
    hyper.lr = 0.01;
    const auto train = [&](FormatId format) {
        recipe::Recipe recipe;
        recipe.state(numerics::StateId::exp_avg).format = format;
        recipe.state(numerics::StateId::exp_avg_sq).format = format;
        optim::Optimizer optimizer(context(), recipe, {});
        optimizer.groups().add(hyper);
        add(optimizer, "w", FormatId::fp32, shape);
        for (int32_t step = 1; step <= 5; ++step) {
            set_grad(optimizer, 0, 1.0F / static_cast<float>(step));
            optimizer.step(stream(), nullptr);
        }
        return values(*optimizer.parameters().state(0, "param"));
    };
    const std::vector<float> exact = train(FormatId::fp32);
    const std::vector<float> first = train(FormatId::block);
    for (const auto& [format, limit] :
         {std::pair{FormatId::block, 0.05}, std::pair{FormatId::dynamic8, 0.05},
          std::pair{FormatId::dynamic4, 0.3}}) {
        const std::vector<float> result = train(format);
        double error = 0.0;
        double moved = 0.0;
        for (std::size_t i = 0; i < exact.size(); ++i) {
            error += std::fabs(static_cast<double>(result[i]) - static_cast<double>(exact[i]));
            moved += 0.05; // about lr a step
        }
        EXPECT_LT(error / moved, limit) << format_name(format);
        EXPECT_GT(error, 0.0) << format_name(format);
    }
    EXPECT_EQ(first, train(FormatId::block));
}

TEST_P(ScaledOptimizer, AGroupThatIsOffIsNotTouched) {
    optim::OptimizerOptions options;
    options.check_finite = true;
    optim::Optimizer optimizer(context(), recipe::Recipe{}, options);
    optimizer.groups().add(numerics::usual_hyper(numerics::RuleId::adamw));
    optimizer.groups().add(numerics::usual_hyper(numerics::RuleId::adamw));
    for (int32_t group = 0; group < 2; ++group) {
        optim::NewParameter p;
        p.name = group == 0 ? "a" : "b";
        p.param = wave(matrix(2, 9), 1.0F);
        optimizer.add_parameter(stream(), group, p);
        set_grad(optimizer, group, 1.0F);
    }
    static_cast<float*>(optimizer.parameters().state(1, "grad")->data())[3] = std::nanf("");
    optimizer.groups().set_enabled(1, false);
    const std::vector<float> first = values(*optimizer.parameters().state(0, "param"));
    const std::vector<float> second = values(*optimizer.parameters().state(1, "param"));
    optimizer.step(stream(), nullptr);
    EXPECT_EQ(optimizer.tables().read_state(stream()).step,
              1); // its gradients are not even checked
    EXPECT_NE(values(*optimizer.parameters().state(0, "param")), first);
    EXPECT_EQ(values(*optimizer.parameters().state(1, "param")), second);
    optimizer.groups().set_enabled(-1, true);
    optimizer.step(stream(), nullptr);
    EXPECT_EQ(optimizer.tables().read_state(stream()).skip, 1U);
    EXPECT_THROW(optimizer.groups().set_enabled(2, true), Error);
}

TEST_P(ScaledOptimizer, RefusesWhatDoesNotFit) {
    const recipe::Recipe recipe = level(2);
    optim::Optimizer optimizer(context(), recipe, {});
    optimizer.groups().add(numerics::usual_hyper(numerics::RuleId::adamw));
    optim::NewParameter p;
    p.name = "w";
    p.param = make(DType::fp16, matrix(4, 4)); // without a scale
    EXPECT_THROW(optimizer.add_parameter(stream(), 0, p), Error);
    p.param = make(recipe.weight, matrix(4, 4));
    const Format rows = {DType::fp8_e4m3, kRowScales,
                         numerics::scale_policy(numerics::ScaleRule::current, DType::fp8_e4m3)};
    p.grad = std::make_shared<Tensor>(context(), stream(), rows, matrix(4, 4));
    EXPECT_THROW(optimizer.add_parameter(stream(), 0, p), Error);
    p.grad = make(DType::fp8_e4m3, matrix(4, 4)); // codes without a scale
    EXPECT_THROW(optimizer.add_parameter(stream(), 0, p), Error);
    p.grad = nullptr;
    EXPECT_EQ(optimizer.parameters().count(), 0);
    EXPECT_EQ(optimizer.add_parameter(stream(), 0, p), 0);
}

INSTANTIATE_TEST_SUITE_P(Backends, ScaledOptimizer, ::testing::Values("reference", "host"),
                         [](const auto& choice) { return std::string(choice.param); });

} // namespace
