// SPDX-License-Identifier: Apache-2.0
// AdamW where arrays hold codes with a scale of their own, MS-AMP's levels: trajectories of an independent implementation, and
// what must hold.
#include <array>
#include <cmath>

#include "scaled_layouts.hpp"
#include "trajectory.hpp"

namespace mp::test {
namespace {

class AdamwScaledValues : public AdamwStep {
  protected:
    // Layouts of `types` whose states are zero with scale 1, as at the start of training.
    static ParamArrays fresh(const Layout& types, const HostArray& start) {
        return fresh_param(types, start);
    }
};

Layout with_unit_scales(DType param, DType grad, DType exp_avg, DType exp_avg_sq) {
    const auto scale = [](DType dtype) { return dtype == kF ? 0.0F : 1.0F; };
    return {param,
            grad,
            exp_avg,
            exp_avg_sq,
            kNone,
            kNone,
            {scale(param), scale(grad), scale(exp_avg), scale(exp_avg_sq), 0.0F}};
}

HostArray values(const std::vector<float>& list) {
    HostArray array(kF, static_cast<int64_t>(list.size()));
    for (std::size_t i = 0; i < list.size(); ++i) {
        array.set(static_cast<int64_t>(i), list[i]);
    }
    return array;
}

std::vector<uint32_t> codes(const HostArray& array) {
    std::vector<uint32_t> list;
    for (int64_t i = 0; i < array.count; ++i) {
        list.push_back(array.code(i));
    }
    return list;
}

constexpr GroupHyper kGoldenHyper = {1e-3, 0.9, 0.999, 1e-8, 0.01};
// MS-AMP subtracts its betas from 1 in fp32: the same as betas that are fp32 numbers to begin with.
constexpr GroupHyper kMsampHyper = {1e-3, 0.9F, 0.999F, 1e-8, 0.01};

// Two steps of MS-AMP's O2 states with one gradient: codes, scales, and parameters against double
// arithmetic on the decoded states.
TEST_P(AdamwScaledValues, TheTraceOfMsampO2) {
    const std::vector<float> grad = {0.1F, -0.2F, 0.3F, 0.001F};
    Training training(device(),
                      {fresh(with_unit_scales(kF, kF, k43, kH), values({1.0F, -2.0F, 3.0F, 0.5F}))},
                      kMsampHyper, {});
    training.set_grad(values(grad));

    training.step();
    const ParamArrays first = training.download();
    EXPECT_EQ(codes(first.exp_avg), (std::vector<uint32_t>{0x6a, 0xf2, 0x77, 0x35}));
    EXPECT_EQ(first.scale_inv.exp_avg, 0x1p-13F);
    EXPECT_EQ(codes(first.exp_avg_sq), (std::vector<uint32_t>{0x6d3e, 0x753e, 0x79e6, 0x384b}));
    EXPECT_EQ(first.scale_inv.exp_avg_sq, 0x1p-29F);

    training.step();
    const ParamArrays second = training.download();
    EXPECT_EQ(codes(second.exp_avg), (std::vector<uint32_t>{0x6a, 0xf2, 0x76, 0x34}));
    EXPECT_EQ(second.scale_inv.exp_avg, 0x1p-12F);
    EXPECT_EQ(codes(second.exp_avg_sq), (std::vector<uint32_t>{0x6d3d, 0x753d, 0x79e5, 0x384b}));
    EXPECT_EQ(second.scale_inv.exp_avg_sq, 0x1p-28F);

    constexpr std::array<double, 4> kFirst = {0.99899, -1.99898, 2.99897, 0.498995};
    constexpr std::array<double, 4> kSecond = {0.997991, -1.997971, 2.997951, 0.497994};
    for (int64_t i = 0; i < 4; ++i) {
        const auto at = static_cast<std::size_t>(i);
        EXPECT_NEAR(first.param.get(i), kFirst[at], 1e-6);
        EXPECT_NEAR(second.param.get(i), kSecond[at], 1e-6);
        const double g = static_cast<double>(grad[at]);
        const double m = kMsampHyper.beta1 * static_cast<double>(first.exp_avg.get(i)) * 0x1p-13 +
                         (1 - kMsampHyper.beta1) * g;
        const double v =
            kMsampHyper.beta2 * static_cast<double>(first.exp_avg_sq.get(i)) * 0x1p-29 +
            (1 - kMsampHyper.beta2) * g * g;
        const double p = static_cast<double>(first.param.get(i));
        const double expected =
            p * (1 - 1e-3 * 0.01) -
            1e-3 / (1 - kMsampHyper.beta1 * kMsampHyper.beta1) * m /
                (std::sqrt(v / (1 - kMsampHyper.beta2 * kMsampHyper.beta2)) + 1e-8);
        EXPECT_NEAR(second.param.get(i) / expected, 1.0, 1e-7);
    }
}

// States that are zero hold no error: the first step is that of fp32 states.
TEST_P(AdamwScaledValues, TheFirstStepIsThatOfFp32States) {
    const HostArray start = generate(kStreamParam, 0, 1000);
    const HostArray grad = generate(kStreamGrad, 1, 1000);
    std::vector<HostArray> params;
    for (const DType exp_avg : {kF, kH, k43}) {
        const Layout layout = with_unit_scales(kF, kF, exp_avg, exp_avg == kF ? kF : kH);
        Training training(device(), {fresh(layout, start)}, kGoldenHyper, {});
        training.set_grad(grad);
        training.step();
        params.push_back(training.download().param);
    }
    EXPECT_TRUE(same_bits(params[0], params[1], NanRule::same_bits));
    EXPECT_TRUE(same_bits(params[0], params[2], NanRule::same_bits));
}

TEST_P(AdamwScaledValues, FourStepsStayWithin3em4OfFp32States) {
    const HostArray start = generate(kStreamParam, 3, 16);
    const auto train = [&](const Layout& layout) {
        Training training(device(), {fresh(layout, start)}, kGoldenHyper, {});
        for (uint64_t step = 1; step <= 4; ++step) {
            training.set_grad(generate(kStreamGrad, step, 16));
            training.step();
        }
        return training.download().param;
    };
    const HostArray exact = train(with_unit_scales(kF, kF, kF, kF));
    for (const DType exp_avg : {kH, k43}) {
        for (const DType exp_avg_sq : {kH, k43}) {
            const HostArray param = train(with_unit_scales(kF, kF, exp_avg, exp_avg_sq));
            for (int64_t i = 0; i < 16; ++i) {
                EXPECT_NEAR(param.get(i), exact.get(i), 3e-4)
                    << dtype_name(exp_avg) << " " << dtype_name(exp_avg_sq);
            }
        }
    }
}

TEST_P(AdamwScaledValues, TrajectoriesHaveTheBitsOfTheFixtures) {
    for (const char* name : {"o1", "o2", "o3", "o2_fp32", "e5m2_grad"}) {
        expect_trajectory(device(), name);
    }
}

// ---- scales ------------------------------------------------------------------------------------

TEST_P(AdamwScaledValues, ASkippedStepChangesNothingButZeroesGradients) {
    StepCase c = with_flags(8);
    c.skip = 1;
    uint64_t seed = 300;
    for (const Layout& layout : scaled_layouts()) {
        c.params.push_back(make_param(layout, 20000, Content::specials, seed++));
    }
    expect_unchanged(c.params, step(c), c.zero_grad);
}

// A 16-bit or 8-bit weight that is not written back would still be what it was.
TEST_P(AdamwScaledValues, EveryParameterWithAGradientChanges) {
    for (const Layout& layout : scaled_layouts()) {
        StepCase c = with_flags(0);
        c.hyper = {{0.25, 0.9, 0.999, 1e-8, 0.0}}; // above half an ulp of every parameter
        c.step = 1;
        ParamArrays arrays = make_param(layout, 500, Content::normal, 410);
        for (HostArray* state : {&arrays.exp_avg, &arrays.exp_avg_sq}) {
            *state = HostArray(state->dtype, state->count);
        }
        for (int64_t i = 0; i < arrays.count(); ++i) {
            arrays.grad.set(i, arrays.grad.get(i) < 0.0F ? -0.5F : 0.5F);
        }
        c.params = {arrays};
        const ParamArrays after = step(c)[0];
        const float old_scale = layout.scale_inv.param != 0.0F ? layout.scale_inv.param : 1.0F;
        const float new_scale = after.scale_inv.param != 0.0F ? after.scale_inv.param : 1.0F;
        int64_t unchanged = 0;
        for (int64_t i = 0; i < arrays.count(); ++i) {
            // Its master weight may differ from it: then the change of that one counts.
            const bool same = layout.master != kNone ? after.master.get(i) == arrays.master.get(i)
                                                     : after.param.get(i) * new_scale ==
                                                           arrays.param.get(i) * old_scale;
            unchanged += same ? 1 : 0;
        }
        EXPECT_EQ(unchanged, 0) << describe(arrays);
    }
}

// The parameter beside a master weight is the master weight, rounded anew by its own amax.
TEST_P(AdamwScaledValues, AScaledParameterIsRoundedFromTheStoredMasterWeight) {
    StepCase c = with_flags(0);
    c.params.push_back(make_param(msamp_o3(), 5000, Content::normal, 420));
    const ParamArrays after = step(c)[0];
    float amax = 0.0F;
    for (int64_t i = 0; i < after.count(); ++i) {
        amax = std::fmax(amax, std::fabs(after.master.get(i) * after.scale_inv.master));
    }
    const auto policy = numerics::scale_policy(numerics::ScaleRule::msamp, k43);
    const float multiply = numerics::block_scale(policy, amax, 0.0F, 0.0F).multiply;
    EXPECT_EQ(after.scale_inv.param, 1.0F / multiply);
    HostArray expected(k43, after.count());
    for (int64_t i = 0; i < after.count(); ++i) {
        expected.set(i, after.master.get(i) * after.scale_inv.master * multiply);
    }
    EXPECT_TRUE(same_bits(expected, after.param, NanRule::same_bits));
}

// MS-AMP turns an infinite amax into 1 / scale, and a tiny one into an infinite scale.
TEST_P(AdamwScaledValues, ScalesStayPowersOfTwoWhateverTheGradientIs) {
    const float infinity = numerics::float_from_bits(numerics::kFloatInfinity);
    for (const float g : {0.0F, 1e-38F, 0x1p-149F, infinity, -infinity, 3e38F}) {
        const Layout layout = with_unit_scales(kF, kF, k43, kH);
        Training training(device(), {fresh(layout, values({1.0F, 2.0F}))}, kGoldenHyper, {});
        training.set_grad(values({g, 0.0F}));
        training.step();
        const ParamArrays after = training.download();
        for (const float scale : {after.scale_inv.exp_avg, after.scale_inv.exp_avg_sq}) {
            const uint32_t u = numerics::bits_from_float(scale);
            EXPECT_EQ(u & 0x007fffffU, 0U) << g;
            EXPECT_GE(u >> 23, 1U) << g;
            EXPECT_LE(u >> 23, 253U) << g;
        }
        if (g == 0.0F || std::isinf(g)) { // nothing to learn a scale from
            EXPECT_EQ(after.scale_inv.exp_avg, 1.0F);
            EXPECT_EQ(after.scale_inv.exp_avg_sq, 1.0F);
        }
        // An infinity is still seen in the codes.
        EXPECT_EQ(std::isnan(after.exp_avg.get(0)), std::isinf(g)) << g;
        EXPECT_FALSE(std::isnan(after.exp_avg.get(1)));
    }
}

// Stochastic rounding into E4M3 saturates; an infinity must not become 448 on the way.
TEST_P(AdamwScaledValues, StochasticRoundingDoesNotHideAnInfinity) {
    TrainingOptions options;
    options.stochastic_states[0] = true;
    const Layout layout = with_unit_scales(kF, kF, k43, kH);
    Training training(device(), {fresh(layout, values({1.0F, 2.0F}))}, kGoldenHyper, options);
    training.set_grad(values({numerics::float_from_bits(numerics::kFloatInfinity), 1.0F}));
    training.step();
    EXPECT_TRUE(std::isnan(training.download().exp_avg.get(0)));
}

// ---- why a second moment in fp8 needs more than one scale --------------------------------------

// The second gradient is a thousand times smaller: its v underflows in E4M3 and not in fp16.
TEST_P(AdamwScaledValues, OneScaleForAnFp8SecondMomentDiverges) {
    const auto second_param = [&](DType exp_avg_sq) {
        const Layout layout = with_unit_scales(kF, kF, k43, exp_avg_sq);
        Training training(device(), {fresh(layout, values({0.0F, 0.0F}))},
                          {1e-3, 0.9, 0.999, 1e-8, 0.0}, {});
        training.set_grad(values({1.0F, 1e-3F}));
        training.step();
        training.set_grad(values({0.0F, 0.0F}));
        training.step();
        return training.download().param.get(1);
    };
    EXPECT_NEAR(second_param(kH), -1.66e-3, 1e-5);
    EXPECT_LT(second_param(k43), -40.0F);
}

// Least squares in 64 dimensions whose features have sizes from 1e-3 to 1: the final loss.
double regression_loss(TestDevice& on, DType exp_avg, DType exp_avg_sq) {
    constexpr int64_t kDims = 64;
    constexpr int64_t kRows = 256;
    const HostArray features = generate(kStreamParam, 11, kRows * kDims);
    const HostArray truth = generate(kStreamParam, 12, kDims);
    const auto feature = [&](int64_t row, int64_t i) {
        const double size = std::pow(10.0, -3.0 + 3.0 * static_cast<double>(i) / (kDims - 1));
        return static_cast<double>(features.get(row * kDims + i)) * size;
    };
    Training training(
        on, {fresh_param(with_unit_scales(kF, kF, exp_avg, exp_avg_sq), HostArray(kF, kDims))},
        {1e-2, 0.9, 0.999, 1e-8, 0.0}, {});
    double loss = 0.0;
    for (int32_t step = 0; step <= 400; ++step) {
        const HostArray weights = training.download().param;
        std::vector<double> grad(kDims, 0.0);
        loss = 0.0;
        for (int64_t row = 0; row < kRows; ++row) {
            double error = 0.0;
            for (int64_t i = 0; i < kDims; ++i) {
                error += feature(row, i) * static_cast<double>(weights.get(i) - truth.get(i));
            }
            loss += error * error / kRows;
            for (int64_t i = 0; i < kDims; ++i) {
                grad[static_cast<std::size_t>(i)] += 2.0 * error * feature(row, i) / kRows;
            }
        }
        HostArray gradient(kF, kDims);
        for (int64_t i = 0; i < kDims; ++i) {
            gradient.set(i, static_cast<float>(grad[static_cast<std::size_t>(i)]));
        }
        training.set_grad(gradient);
        training.step();
    }
    return loss;
}

TEST_P(AdamwScaledValues, ARegressionNeedsAnFp16SecondMoment) {
    if (GetParam().threads != 1) {
        GTEST_SKIP() << "skipped: the same bits as with one thread";
    }
    const double exact = regression_loss(device(), kF, kF);
    const double fp16 = regression_loss(device(), k43, kH);
    const double fp8 = regression_loss(device(), k43, k43);
    RecordProperty("losses",
                   std::to_string(exact) + " " + std::to_string(fp16) + " " + std::to_string(fp8));
    EXPECT_LT(fp16, 2.0 * exact);
    EXPECT_GT(fp8, 100.0 * exact);
}

MP_ALL_BACKENDS(AdamwScaledValues);

} // namespace
} // namespace mp::test
