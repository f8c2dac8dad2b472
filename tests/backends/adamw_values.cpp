// SPDX-License-Identifier: Apache-2.0
// AdamW's golden numbers on every backend: double references, closed forms, and the traps of low
// precision (bf16 moments that cannot shrink, updates and weight decay that round away, hyperparameters
// rounded to 16 bits) with what Kahan summation, stochastic rounding and master weights do about them.
#include <cmath>

#include "adamw_eager.hpp"
#include "adamw_fixture.hpp"
#include "training.hpp"

namespace mp::test {
namespace {

using numerics::GroupHyper;

constexpr DType kFp32 = DType::fp32;
constexpr DType kFp16 = DType::fp16;
constexpr DType kBf16 = DType::bf16;
constexpr DType kNone = DType::none;

// Layouts with a bf16 parameter and bf16 gradient.
Layout bf16_with(DType moments, DType compensation, DType master) {
    return {kBf16, kBf16, moments, moments, compensation, master};
}

struct MeanAndError {
    double mean = 0.0;
    double error = 0.0; // standard error of the mean
};

MeanAndError statistics(const HostArray& array) {
    const auto n = static_cast<double>(array.count);
    double sum = 0.0;
    double squares = 0.0;
    for (int64_t i = 0; i < array.count; ++i) {
        sum += static_cast<double>(array.get(i));
    }
    const double mean = sum / n;
    for (int64_t i = 0; i < array.count; ++i) {
        const double d = static_cast<double>(array.get(i)) - mean;
        squares += d * d;
    }
    return {mean, std::sqrt(squares / (n - 1.0) / n)};
}

class AdamwValues : public BackendTest {
  protected:
    // `steps` steps with one gradient.
    ParamArrays train(const ParamArrays& start, float grad, const GroupHyper& hyper, int64_t steps,
                      const TrainingOptions& options = {}) {
        Training training(device(), {start}, hyper, options);
        training.set_grad(constant(start.grad.dtype, start.count(), grad));
        training.steps(steps);
        return training.download();
    }
    ParamArrays train(const Layout& layout, float start, float grad, const GroupHyper& hyper,
                      int64_t steps, const TrainingOptions& options = {}, int64_t count = 1) {
        return train(fresh_param(layout, constant(kFp32, count, start)), grad, hyper, steps,
                     options);
    }
    ParamArrays train_sine(const Layout& layout, const GroupHyper& hyper) {
        Training training(device(), {fresh_param(layout, constant(kFp32, 1, 1.0F))}, hyper, {});
        for (int32_t t = 1; t <= 10; ++t) {
            training.set_grad(constant(layout.grad, 1, static_cast<float>(std::sin(t))));
            training.step();
        }
        return training.download();
    }
};

// ---- fp32 against double -----------------------------------------------------------------------

TEST_P(AdamwValues, SineGradientsGiveTheDoubleReference) {
    const ParamArrays result = train_sine({}, {1e-3, 0.9, 0.999, 1e-8, 0.01});
    const AdamwFixture& fixture = adamw_fixture();
    EXPECT_NEAR(fixture.number("sine_p"), 0.99624567607096415, 1e-15);
    EXPECT_NEAR(fixture.number("sine_m"), 0.074037644701848176, 1e-16);
    EXPECT_NEAR(fixture.number("sine_v"), 0.0049766045888604482, 1e-17);
    EXPECT_LE(ulps(result.param.get(0), static_cast<float>(fixture.number("sine_p"))), 2);
    EXPECT_LE(ulps(result.exp_avg.get(0), static_cast<float>(fixture.number("sine_m"))), 2);
    EXPECT_LE(ulps(result.exp_avg_sq.get(0), static_cast<float>(fixture.number("sine_v"))), 2);
}

// a^T p0 - lr g / (|g| + eps) (1 - a^T) / (1 - a) with a = 1 - lr weight_decay.
TEST_P(AdamwValues, AConstantGradientGivesTheClosedForm) {
    const ParamArrays result = train({}, 1.0F, 0.1F, {1e-3, 0.9, 0.999, 1e-8, 0.01}, 100);
    const double exact = adamw_fixture().number("constant_p");
    EXPECT_NEAR(exact, 0.89904998866731, 1e-14);
    EXPECT_LE(ulps(result.param.get(0), static_cast<float>(exact)), 2);
}

// ---- the second moment -------------------------------------------------------------------------

// Every bf16 mantissa from 1 to 2, with a gradient of zero for one step.
std::pair<int32_t, int32_t> count_shrinking(const ParamArrays& before, const ParamArrays& after) {
    int32_t shrinking = 0;
    int32_t unchanged = 0;
    for (int64_t i = 0; i < before.count(); ++i) {
        shrinking += after.exp_avg_sq.get(i) < before.exp_avg_sq.get(i) ? 1 : 0;
        unchanged += after.exp_avg_sq.get(i) == before.exp_avg_sq.get(i) ? 1 : 0;
    }
    return {shrinking, unchanged};
}

TEST_P(AdamwValues, ABf16SecondMomentCannotShrinkAtBeta2Of0999) {
    ParamArrays start = fresh_param(bf16_with(kBf16, kNone, kNone), constant(kFp32, 128, 1.0F));
    for (uint32_t i = 0; i < 128; ++i) {
        start.exp_avg_sq.set_code(i, 0x3f80U + i);
    }
    const auto [shrinking, unchanged] =
        count_shrinking(start, train(start, 0.0F, {1e-3, 0.9, 0.999, 1e-8, 0.0}, 1));
    EXPECT_EQ(shrinking, 0);
    EXPECT_EQ(unchanged, 128);
    const auto [shrinking_less, unchanged_less] =
        count_shrinking(start, train(start, 0.0F, {1e-3, 0.9, 0.996, 1e-8, 0.0}, 1));
    EXPECT_EQ(shrinking_less, 128);
    EXPECT_EQ(unchanged_less, 0);
}

TEST_P(AdamwValues, StochasticRoundingLetsABf16SecondMomentShrink) {
    constexpr int64_t kCount = 4096;
    constexpr int64_t kSteps = 300;
    ParamArrays start = fresh_param(bf16_with(kBf16, kNone, kNone), constant(kFp32, kCount, 1.0F));
    start.exp_avg_sq = constant(kBf16, kCount, 1.0F);
    TrainingOptions options;
    options.stochastic_states[1] = true;
    const ParamArrays result = train(start, 0.0F, {1e-3, 0.9, 0.999, 1e-8, 0.0}, kSteps, options);
    const MeanAndError v = statistics(result.exp_avg_sq);
    EXPECT_NEAR(v.mean, std::pow(0.999, kSteps), 5.0 * v.error);
    EXPECT_GT(v.error, 0.0);
}

// Where a bf16 second moment stops short of the squared gradient G: a growth of (1 - beta2)(G - v)
// below half an ulp rounds away.
TEST_P(AdamwValues, ABf16SecondMomentStopsShortOfTheSquaredGradient) {
    const std::array<std::pair<float, float>, 3> expected = {
        {{1.0F, 0.25F}, {1.3F, 0.2494F}, {1.7F, 0.2941F}}};
    for (const auto& [square, share] : expected) {
        Layout layout = bf16_with(kBf16, kNone, kNone);
        layout.grad = kFp32;
        const ParamArrays result =
            train(layout, 1.0F, std::sqrt(square), {1e-6, 0.9, 0.999, 1e-8, 0.0}, 20000);
        EXPECT_NEAR(static_cast<double>(result.exp_avg_sq.get(0) / square),
                    static_cast<double>(share), 5e-5)
            << square;
    }
}

// ---- small updates -----------------------------------------------------------------------------

// 1000 steps from p = 1 with a gradient of 1. Without momentum the update is exactly fl(-1e-4).
constexpr GroupHyper kSmallUpdate = {1e-4, 0.0, 0.0, 1e-8, 0.0};

double total(const ParamArrays& arrays) {
    return static_cast<double>(arrays.param.get(0)) +
           static_cast<double>(arrays.compensation.get(0));
}

TEST_P(AdamwValues, SmallUpdatesAreLostInPlainBf16) {
    const ParamArrays result =
        train(bf16_with(kFp32, kNone, kNone), 1.0F, 1.0F, kSmallUpdate, 1000);
    EXPECT_EQ(result.param.get(0), 1.0F);
}

TEST_P(AdamwValues, KahanSummationKeepsSmallUpdates) {
    const ParamArrays in_bf16 =
        train(bf16_with(kFp32, kBf16, kNone), 1.0F, 1.0F, kSmallUpdate, 1000);
    EXPECT_EQ(in_bf16.param.get(0), 0.90234375F);
    EXPECT_NEAR(total(in_bf16), 0.90061951, 5e-9);
    const ParamArrays in_fp32 =
        train(bf16_with(kFp32, kFp32, kNone), 1.0F, 1.0F, kSmallUpdate, 1000);
    EXPECT_NEAR(total(in_fp32), 0.90000002, 5e-9);
}

// With the usual betas the update itself has an error: fl(0.999) alone makes it up to 6.5e-6 too small.
TEST_P(AdamwValues, KahanSummationKeepsSmallUpdatesWithMomentum) {
    const GroupHyper hyper = {1e-4, 0.9, 0.999, 1e-8, 0.0};
    const ParamArrays in_bf16 = train(bf16_with(kFp32, kBf16, kNone), 1.0F, 1.0F, hyper, 1000);
    EXPECT_EQ(in_bf16.param.get(0), 0.90234375F);
    EXPECT_NEAR(total(in_bf16), 0.90061951, 5e-9);
    const ParamArrays in_fp32 = train(bf16_with(kFp32, kFp32, kNone), 1.0F, 1.0F, hyper, 1000);
    EXPECT_NEAR(total(in_fp32), 0.9, 0.1 * 6.5e-6);
}

TEST_P(AdamwValues, AMasterWeightKeepsSmallUpdates) {
    const ParamArrays result =
        train(bf16_with(kFp32, kNone, kFp32), 1.0F, 1.0F, kSmallUpdate, 1000);
    EXPECT_NEAR(static_cast<double>(result.master.get(0)), 0.9, 1000 * 0x1p-25);
    HostArray rounded(kBf16, 1);
    rounded.set(0, result.master.get(0));
    EXPECT_EQ(result.param.get(0), rounded.get(0));
}

TEST_P(AdamwValues, StochasticRoundingKeepsSmallUpdatesOnAverage) {
    TrainingOptions options;
    options.stochastic_param = true;
    const ParamArrays result =
        train(bf16_with(kFp32, kNone, kNone), 1.0F, 1.0F, kSmallUpdate, 1000, options, 4096);
    const MeanAndError p = statistics(result.param);
    EXPECT_NEAR(p.mean, 0.9, 5.0 * p.error);
    // sum of ulp u (1 - u / ulp) over the steps, ulp 2^-8: 0.0195 for each element.
    EXPECT_NEAR(p.error * 64.0, 0.0195, 0.002);
}

// ---- weight decay ------------------------------------------------------------------------------

// lr * weight_decay = 1e-4, no gradient, 1000 steps from 1.5: 1.5 * (1 - 1e-4)^1000.
constexpr GroupHyper kDecayOnly = {1e-3, 0.9, 0.999, 1e-8, 0.1};
constexpr double kDecayed = 1.35725;
constexpr double kBf16Ulp = 0x1p-7; // from 1 to 2

TEST_P(AdamwValues, WeightDecayIsLostInPlainBf16Only) {
    EXPECT_EQ(train(bf16_with(kFp32, kNone, kNone), 1.5F, 0.0F, kDecayOnly, 1000).param.get(0),
              1.5F);
    EXPECT_NEAR(static_cast<double>(train({}, 1.5F, 0.0F, kDecayOnly, 1000).param.get(0)), kDecayed,
                1e-5);
    for (const DType compensation : {kBf16, kFp16, kFp32}) {
        const ParamArrays result =
            train(bf16_with(kBf16, compensation, kNone), 1.5F, 0.0F, kDecayOnly, 1000);
        EXPECT_NEAR(static_cast<double>(result.param.get(0)), kDecayed, kBf16Ulp)
            << dtype_name(compensation);
    }
    const ParamArrays master = train(bf16_with(kFp32, kNone, kFp32), 1.5F, 0.0F, kDecayOnly, 1000);
    EXPECT_NEAR(static_cast<double>(master.param.get(0)), kDecayed, kBf16Ulp);
    TrainingOptions options;
    options.stochastic_param = true;
    const ParamArrays stochastic =
        train(bf16_with(kFp32, kNone, kNone), 1.5F, 0.0F, kDecayOnly, 1000, options, 4096);
    const MeanAndError p = statistics(stochastic.param);
    EXPECT_NEAR(p.mean, kDecayed, kBf16Ulp);
    EXPECT_NEAR(p.mean, kDecayed, 5.0 * p.error);
}

// ---- failures seen in other libraries ----------------------------------------------------------

// beta2 = 0.999 as a bf16 number is 1: v then stops at a third of its value and never decays.
TEST_P(AdamwValues, Bf16StatesFollowTheSquaredGradientUpAndDown) {
    constexpr int64_t kCount = 128;
    Layout layout = bf16_with(kBf16, kNone, kNone);
    layout.grad = kFp32;
    TrainingOptions options;
    options.stochastic_states[1] = true;
    Training training(device(), {fresh_param(layout, constant(kFp32, kCount, 1.0F))},
                      {1e-6, 0.9, 0.999, 1e-8, 0.0}, options);
    training.set_grad(constant(kFp32, kCount, 0.01F));
    training.steps(20000);
    const MeanAndError up = statistics(training.download().exp_avg_sq);
    EXPECT_NEAR(up.mean, 1e-4, 5.0 * up.error);
    EXPECT_LT(up.error, 1e-6);
    training.set_grad(constant(kFp32, kCount, 0.0F));
    training.steps(5000);
    const MeanAndError down = statistics(training.download().exp_avg_sq);
    EXPECT_NEAR(down.mean, 1e-4 * std::pow(0.999, 5000), 5.0 * down.error);
    EXPECT_LT(down.error, 1e-7);
}

// eps = 1e-8 as an fp16 number is 0, and 0 / 0 is NaN.
TEST_P(AdamwValues, Fp16StatesDoNotDivideByZero) {
    const Layout layout = {kFp16, kFp16, kFp16, kFp16, kNone, kNone};
    EXPECT_EQ(train(layout, 1.0F, 0.0F, {1e-3, 0.9, 0.999, 1e-8, 0.0}, 10).param.get(0), 1.0F);
    // Squares of gradients below 2.4e-4 underflow in fp16; the step must still be finite.
    const ParamArrays tiny = train(layout, 1.0F, 1e-4F, {1e-3, 0.9, 0.999, 1e-8, 0.0}, 10);
    EXPECT_TRUE(numerics::is_finite(tiny.param.get(0)));
}

// The states' types are their own: a bf16 parameter leaves fp32 moments the bits of an fp32 run.
TEST_P(AdamwValues, StateTypesAreNotTheParametersType) {
    constexpr int64_t kCount = 1000;
    const HostArray start = generate(kStreamParam, 0, kCount);
    const Layout in_fp32 = {kFp32, kBf16, kFp32, kFp32, kNone, kNone};
    const GroupHyper hyper = {1e-3, 0.9, 0.999, 1e-8, 0.01};
    Training full(device(), {fresh_param(in_fp32, start)}, hyper, {});
    Training half(device(), {fresh_param(bf16_with(kFp32, kNone, kNone), start)}, hyper, {});
    Training bare(device(), {fresh_param(bf16_with(kBf16, kNone, kNone), start)}, hyper, {});
    for (uint64_t step = 1; step <= 50; ++step) {
        for (Training* training : {&full, &half, &bare}) {
            training->set_grad(generate(kStreamGrad, step, kCount, 0, kBf16));
            training->step();
        }
    }
    const ParamArrays expected = full.download();
    const ParamArrays result = half.download();
    EXPECT_EQ(expected.exp_avg.bytes, result.exp_avg.bytes);
    EXPECT_EQ(expected.exp_avg_sq.bytes, result.exp_avg_sq.bytes);
    const ParamArrays rounded = bare.download();
    int64_t differing = 0;
    for (int64_t i = 0; i < kCount; ++i) {
        differing += rounded.exp_avg_sq.get(i) != expected.exp_avg_sq.get(i) ? 1 : 0;
    }
    EXPECT_GT(differing, kCount / 2); // that bf16 moments would be seen
}

// An fp32 weight imported into bf16 with compensation loses nothing when the compensation receives
// what the rounding lost; with a compensation of zero the low bits are gone for good.
TEST_P(AdamwValues, AFilledCompensationKeepsTheImportedBits) {
    constexpr int64_t kCount = 1000;
    const HostArray exact = generate(kStreamParam, 0, kCount);
    ParamArrays filled = fresh_param(bf16_with(kFp32, kFp32, kNone), exact);
    for (int64_t i = 0; i < kCount; ++i) {
        filled.compensation.set(i, exact.get(i) - filled.param.get(i));
    }
    ParamArrays empty = fresh_param(bf16_with(kFp32, kFp32, kNone), exact);
    const GroupHyper hyper = {1e-5, 0.9, 0.999, 1e-8, 0.0};
    const ParamArrays master =
        train(fresh_param(bf16_with(kFp32, kNone, kFp32), exact), 0.5F, hyper, 100);
    filled = train(filled, 0.5F, hyper, 100);
    empty = train(empty, 0.5F, hyper, 100);
    int64_t lost = 0;
    for (int64_t i = 0; i < kCount; ++i) {
        const double expected = static_cast<double>(master.master.get(i));
        const auto value = [i](const ParamArrays& arrays) {
            return static_cast<double>(arrays.param.get(i)) +
                   static_cast<double>(arrays.compensation.get(i));
        };
        // 100 roundings of the master, half an ulp of at most 2^-24 each.
        EXPECT_NEAR(value(filled), expected, 100 * 0x1p-25);
        lost += std::abs(value(empty) - expected) > 100 * 0x1p-25 ? 1 : 0;
    }
    EXPECT_GT(lost, kCount / 2);
}

MP_ALL_BACKENDS(AdamwValues);

// ---- torchdistx's order of roundings --------------------------------------------------------------

TEST(AdamwEagerValues, HasItsOwnGoldenNumbers) {
    EagerTraining training(fresh_param(bf16_with(kBf16, kBf16, kNone), constant(kFp32, 1, 1.0F)),
                           kSmallUpdate);
    training.set_grad(constant(kBf16, 1, 1.0F));
    training.steps(1000);
    const ParamArrays result = training.download();
    EXPECT_EQ(result.param.get(0), 0.90234375F);
    EXPECT_NEAR(total(result), 0.90055847, 5e-9);
    // torchdistx decays the parameter in its own type, outside the compensation: it is lost.
    EagerTraining decay(fresh_param(bf16_with(kBf16, kBf16, kNone), constant(kFp32, 1, 1.5F)),
                        kDecayOnly);
    decay.set_grad(constant(kBf16, 1, 0.0F));
    decay.steps(1000);
    EXPECT_EQ(decay.download().param.get(0), 1.5F);
}

} // namespace
} // namespace mp::test
