// SPDX-License-Identifier: Apache-2.0
// The optimizer with scaled states: MS-AMP's levels, what is kept in which type and bytes, and what is refused.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "core_context.hpp"
#include "numerics/codec.hpp"
#include "numerics/remainder.hpp"
#include "optim/optimizer.hpp"
#include "quant/quantize.hpp"
#include "recipe/keys.hpp"

using namespace mp;

namespace {

// The storage of MS-AMP's three levels.
recipe::Recipe level(int32_t number) {
    recipe::Recipe recipe;
    recipe.weight = number == 3 ? FormatId::e4m3_scaled : FormatId::fp16_scaled;
    recipe.master = number == 3 ? FormatId::fp16_scaled : FormatId::none;
    recipe.grad = FormatId::e4m3_scaled;
    recipe.state(numerics::StateId::exp_avg).format =
        number == 1 ? FormatId::fp32 : FormatId::e4m3_scaled;
    recipe.state(numerics::StateId::exp_avg_sq).format =
        number == 1 ? FormatId::fp32 : FormatId::fp16_scaled;
    return recipe;
}

Shape matrix(int64_t rows, int64_t columns) { return {{rows, columns}, 2}; }

class ScaledOptimizer : public ::testing::TestWithParam<const char*> {
  protected:
    [[nodiscard]] std::shared_ptr<Tensor> make(DType dtype, const Shape& shape) const {
        return std::make_shared<Tensor>(context_, stream(), dtype, shape);
    }
    [[nodiscard]] std::shared_ptr<Tensor> make(FormatId format, const Shape& shape) const {
        if (!is_scaled(format)) {
            return make(dtype_of(format), shape);
        }
        const DType codes = dtype_of(format);
        const Format form = {codes, kTensorScale,
                             numerics::scale_policy(numerics::ScaleRule::msamp, codes)};
        return std::make_shared<Tensor>(context_, stream(), form, shape);
    }
    [[nodiscard]] std::shared_ptr<Tensor> wave(const Shape& shape, float size) const {
        auto tensor = make(DType::fp32, shape);
        auto* data = static_cast<float*>(tensor->data());
        for (int64_t i = 0; i < tensor->count(); ++i) {
            data[i] = size * std::sin(0.37F * static_cast<float>(i + 1));
        }
        return tensor;
    }
    // Adds a parameter of the recipe's weight format with the gradient `size` * wave.
    void add(optim::Optimizer& optimizer, const std::string& name, FormatId format,
             const Shape& shape) const {
        optim::NewParameter p;
        p.name = name;
        p.param = make(format, shape);
        p.init_fp32 = wave(shape, 0.5F);
        optimizer.add_parameter(stream(), 0, p);
    }
    void set_grad(const optim::Optimizer& optimizer, int32_t index, float size) const {
        const auto grad = optimizer.parameters().state(index, "grad");
        const auto values = wave(grad->shape(), size);
        if (grad->scales() != nullptr) {
            quant::quantize_tensor(stream(), *values, *grad, nullptr);
        } else {
            cast_tensor(stream(), values->ref(), grad->ref());
        }
    }
    [[nodiscard]] static std::vector<float> values(const Tensor& tensor) {
        const auto* scales = tensor.scales();
        const float scale =
            scales == nullptr ? 1.0F : *static_cast<const float*>(scales->scale_inv->data());
        std::vector<float> list;
        for (int64_t i = 0; i < tensor.count(); ++i) {
            list.push_back(numerics::load_as_float(tensor.dtype(), tensor.data(), i) * scale);
        }
        return list;
    }
    [[nodiscard]] Stream& stream() const { return context_->stream(); }
    [[nodiscard]] const std::shared_ptr<Context>& context() const { return context_; }

  private:
    std::shared_ptr<Context> context_ = test::make_context(GetParam(), 2);
};

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
    optim::Optimizer exact(context(), recipe::Recipe{}, {});
    exact.groups().add(hyper);
    add(exact, "w", FormatId::fp32, shape);
    for (int32_t number = 1; number <= 3; ++number) {
        const recipe::Recipe recipe = level(number);
        optim::Optimizer optimizer(context(), recipe, {});
        optimizer.groups().add(hyper);
        add(optimizer, "w", recipe.weight, shape);
        const char* weight = number == 3 ? "master" : "param";
        const std::vector<float> before = values(*optimizer.parameters().state(0, weight));
        if (number > 1) { // the same run again
            exact = optim::Optimizer(context(), recipe::Recipe{}, {});
            exact.groups().add(hyper);
            add(exact, "w", FormatId::fp32, shape);
        }
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
    const numerics::OptimizerState state = optimizer.read_state(stream());
    EXPECT_NEAR(state.grad_norm, std::sqrt(squares), 1e-9 * std::sqrt(squares));
    EXPECT_NEAR(state.grad_mul, 0.5 / (std::sqrt(squares) + 1e-6), 1e-9);
    EXPECT_EQ(state.skip, 0U);

    static_cast<unsigned char*>(optimizer.parameters().state(0, "grad")->data())[5] = 0x7f; // NaN
    const std::vector<float> before = values(*optimizer.parameters().state(0, "param"));
    optimizer.step(stream(), nullptr);
    EXPECT_EQ(optimizer.read_state(stream()).skip, 1U);
    EXPECT_EQ(optimizer.read_state(stream()).step, 1);
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
    second.set_step(stream(), 3);
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

std::string refusal(const recipe::Recipe& recipe) {
    try {
        recipe::check_recipe(recipe);
    } catch (const Error& error) {
        EXPECT_EQ(error.status().code(), Code::invalid_argument);
        return error.what();
    }
    return "";
}

TEST(ScaledRecipe, LevelsAreAllowed) {
    for (int32_t number = 1; number <= 3; ++number) {
        EXPECT_EQ(refusal(level(number)), "");
    }
}

TEST(ScaledRecipe, UnsoundCombinationsAreRefusedWithTheReason) {
    recipe::Recipe recipe = level(2);
    recipe.state(numerics::StateId::exp_avg_sq).format = FormatId::e4m3_scaled;
    EXPECT_NE(refusal(recipe).find("2.3e5"), std::string::npos);
    recipe = level(3);
    recipe.master = FormatId::none;
    EXPECT_NE(refusal(recipe).find("master"), std::string::npos);
    recipe.weight_rounding = recipe::RoundingMode::stochastic;
    EXPECT_EQ(refusal(recipe), "");
    recipe = level(2);
    recipe.state(numerics::StateId::exp_avg).format = FormatId::dynamic8;
    EXPECT_EQ(refusal(recipe), "");
    recipe.state(numerics::StateId::exp_avg).rounding = recipe::RoundingMode::stochastic;
    EXPECT_NE(refusal(recipe).find("nearest only"), std::string::npos);
    recipe = level(2);
    recipe.compensation = FormatId::fp16;
    EXPECT_NE(refusal(recipe).find("Kahan"), std::string::npos);
}

TEST(ScaledRecipe, FormatsHaveNamesInKeys) {
    recipe::Recipe recipe;
    constexpr std::array<std::pair<const char*, const char*>, 5> kValues = {
        {{"weight.dtype", "fp8_e4m3_scaled"},
         {"master.dtype", "fp16_scaled"},
         {"grad.dtype", "fp8_e5m2_scaled"},
         {"optimizer.exp_avg.dtype", "fp8_e4m3_scaled"},
         {"optimizer.exp_avg_sq.dtype", "fp16_scaled"}}};
    for (const auto& [key, value] : kValues) {
        recipe::set_key(recipe, recipe::find_key(key), value);
        EXPECT_EQ(recipe::key_text(recipe, recipe::find_key(key)), value);
    }
    EXPECT_EQ(recipe.weight, FormatId::e4m3_scaled);
    EXPECT_EQ(recipe.master, FormatId::fp16_scaled);
    EXPECT_EQ(recipe.grad, FormatId::e5m2_scaled);
    EXPECT_EQ(recipe.state(numerics::StateId::exp_avg).format, FormatId::e4m3_scaled);
    EXPECT_EQ(recipe.state(numerics::StateId::exp_avg_sq).format, FormatId::fp16_scaled);
    recipe::set_key(recipe, recipe::find_key("master.dtype"), "none");
    EXPECT_FALSE(recipe.master != FormatId::none);
    EXPECT_THROW(recipe::set_key(recipe, recipe::find_key("weight.dtype"), "fp8_e4m3"), Error);
}

// The lists of the keys are the table's rows.
TEST(ScaledRecipe, KeysOfferEveryFormatOfTheTable) {
    const auto expect_formats = [](const char* key, FormatRoles role) {
        AllFormats::for_each([&](auto format) {
            const FormatId one = decltype(format)::kFormat;
            // Gradients of others may come in scaled bf16; the library makes none.
            if ((format_roles(one) & role) != 0 && one != FormatId::bf16_scaled) {
                EXPECT_NO_THROW({
                    recipe::Recipe recipe;
                    recipe::set_key(recipe, recipe::find_key(key), format_name(one));
                }) << key
                   << " " << format_name(one);
            } else if (one != FormatId::bf16_scaled) {
                recipe::Recipe recipe;
                EXPECT_THROW(recipe::set_key(recipe, recipe::find_key(key), format_name(one)),
                             Error)
                    << key << " " << format_name(one);
            }
        });
    };
    expect_formats("weight.dtype", kForParam);
    expect_formats("grad.dtype", kForGrad);
    expect_formats("master.dtype", kForMaster);
    expect_formats("optimizer.exp_avg.dtype", kForState);
    expect_formats("optimizer.exp_avg_sq.dtype", kForState);
    expect_formats("optimizer.compensation.dtype", kForCompensation);
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

// ---- remainders, external writes, groups that are off ------------------------------------------

TEST_P(ScaledOptimizer, BytesOfARemainder) {
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
TEST_P(ScaledOptimizer, ARemainderIsAnFp32Weight) {
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
TEST_P(ScaledOptimizer, MasterWeightsFollowWhatTheCallerWrote) {
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
    EXPECT_EQ(optimizer.read_state(stream()).step, 1); // its gradients are not even checked
    EXPECT_NE(values(*optimizer.parameters().state(0, "param")), first);
    EXPECT_EQ(values(*optimizer.parameters().state(1, "param")), second);
    optimizer.groups().set_enabled(-1, true);
    optimizer.step(stream(), nullptr);
    EXPECT_EQ(optimizer.read_state(stream()).skip, 1U);
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
