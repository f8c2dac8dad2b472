// SPDX-License-Identifier: Apache-2.0
// AdamW with moments in blocks: trajectories whose codes are torchao's, the reference's bits on every
// backend, and what must hold.
#include <cmath>
#include <cstdio>

#include "trajectory.hpp"

namespace mp::test {
namespace {

constexpr DType kF = DType::fp32;
constexpr DType kH = DType::fp16;
constexpr DType kB = DType::bf16;
constexpr DType kNone = DType::none;

constexpr std::array<Coding, 5> kBlocks = {Coding::block, Coding::dynamic8, Coding::dynamic4,
                                           Coding::block128, Coding::companded8};

DType code_type(Coding coding) { return block_layout(coding).codes; }

Layout with_blocks(DType param, DType grad, DType compensation, DType master, Coding exp_avg,
                   Coding exp_avg_sq) {
    Layout layout = {
        param, grad,    code_type(exp_avg), code_type(exp_avg_sq), compensation, master,
        {},    exp_avg, exp_avg_sq};
    return layout;
}

std::vector<Layout> block_layouts() {
    std::vector<Layout> layouts;
    for (const Coding m : kBlocks) {
        for (const Coding v : kBlocks) {
            layouts.push_back(with_blocks(kF, kF, kNone, kNone, m, v));
        }
        layouts.push_back(with_blocks(kB, kB, kB, kNone, m, m));
        layouts.push_back(with_blocks(kB, kF, kNone, kF, m, m));
        // One moment in blocks, the other plain or under one scale; a scaled parameter and gradient.
        Layout mixed = with_blocks(kH, DType::fp8_e4m3, kNone, kNone, m, Coding::block);
        mixed.exp_avg_sq = kH;
        mixed.exp_avg_sq_coding = Coding::plain;
        mixed.scale_inv = {0x1p-3F, 0x1p-5F, 0.0F, 0x1p-9F, 0.0F};
        layouts.push_back(mixed);
        mixed = with_blocks(kB, kB, kNone, kNone, Coding::block, m);
        mixed.exp_avg = kB;
        mixed.exp_avg_coding = Coding::plain;
        layouts.push_back(mixed);
        for (const DType param :
             m == Coding::dynamic4 ? std::vector<DType>{} : std::vector{kB, kH}) {
            Layout kahan = {param, param, kB, kF, code_type(m)};
            kahan.compensation_coding = m;
            layouts.push_back(kahan);
            kahan.exp_avg = code_type(m);
            kahan.exp_avg_coding = m;
            layouts.push_back(kahan);
        }
    }
    return layouts;
}

class AdamwBlocks : public AdamwComparison {};

TEST_P(AdamwBlocks, EqualsTheReferenceForEveryLayoutAndContent) {
    for (const Content content : kAllContents) {
        for (const uint32_t bits : {0U, 1U, 8U}) {
            SCOPED_TRACE(std::string(content_name(content)) + ", flags " + std::to_string(bits));
            StepCase c = with_flags(bits);
            uint64_t seed = 9000;
            for (const Layout& layout : block_layouts()) {
                c.params.push_back(make_param(layout, 777, content, seed));
                c.params.back().group = static_cast<int32_t>(seed % 3);
                ++seed;
            }
            compare(c);
        }
    }
}

TEST_P(AdamwBlocks, EqualsTheReferenceForEverySize) {
    for (const int64_t count : kSizes) {
        for (const Coding coding : kBlocks) {
            StepCase c = with_flags(0);
            c.params.push_back(make_param(with_blocks(kB, kB, kNone, kNone, coding, coding), count,
                                          Content::normal, 73));
            compare(c);
        }
    }
}

TEST_P(AdamwBlocks, Fp8BlocksRoundStochastically) {
    StepCase c = with_flags(7);
    for (const Coding coding : {Coding::block, Coding::block128}) {
        for (const int64_t count : {33000, 131, 128, 1}) {
            c.params.push_back(make_param(with_blocks(kB, kB, kNone, kNone, coding, coding), count,
                                          Content::normal, 74));
        }
    }
    compare(c);
}

TEST_P(AdamwBlocks, EqualsTheReferenceForMixedSegmentsInOneLaunch) {
    constexpr std::array<int64_t, 10> kCounts = {16385, 0, 7, 4097, 1, 33000, 4095, 257, 0, 255};
    StepCase c = with_flags(8);
    c.grad_mul = 1.0 / 3.0;
    std::vector<Layout> layouts = block_layouts();
    layouts.push_back({});
    for (std::size_t i = 0; i < 40; ++i) {
        c.params.push_back(
            make_param(layouts[i % layouts.size()], kCounts[i % 10], Content::normal, 90 + i));
        c.params.back().group = static_cast<int32_t>(i % 3);
    }
    compare(c);
}

MP_COMPARE_BACKENDS(AdamwBlocks);

// ---- what must hold, whoever computes it -------------------------------------------------------

class AdamwBlockValues : public AdamwStep {
  protected:
    void SetUp() override {
        AdamwStep::SetUp();
        const Layout blocks = with_blocks(kF, kF, kNone, kNone, Coding::block, Coding::block);
        if (!IsSkipped() && !takes(device(), GetParam(), fresh_param(blocks, HostArray(kF, 1)))) {
            GTEST_SKIP() << "skipped: this device takes no moments in blocks";
        }
    }
};

TEST_P(AdamwBlockValues, TrajectoriesHaveTheBitsOfTheFixtures) {
    for (const char* name : {"fp8_blocks", "int8_blocks", "int4_blocks", "int8_of_o2",
                             "fp8_128_blocks", "companded_blocks", "companded_of_o2"}) {
        expect_trajectory(device(), name);
    }
}

TEST_P(AdamwBlockValues, ASkippedStepChangesNothingButZeroesGradients) {
    StepCase c = with_flags(8);
    c.skip = 1;
    uint64_t seed = 300;
    for (const Layout& layout : block_layouts()) {
        c.params.push_back(make_param(layout, 5000, Content::specials, seed++));
    }
    expect_unchanged(c.params, step(c), c.zero_grad);
}

// An infinity or a NaN has no code in a dynamic map: the scale of its block shows it.
TEST_P(AdamwBlockValues, WhatIsNotFiniteShowsInItsBlock) {
    const float infinity = numerics::float_from_bits(numerics::kFloatInfinity);
    for (const Coding coding : kBlocks) {
        Training training(
            device(),
            {fresh_param(with_blocks(kF, kF, kNone, kNone, coding, coding), HostArray(kF, 600))},
            {}, {});
        HostArray grad = constant(kF, 600, 1.0F);
        grad.set(300, infinity);
        training.set_grad(grad);
        training.step();
        const ParamArrays after = training.download();
        const int64_t bad = 300 / block_size(coding);
        for (int64_t block = 0; block < after.exp_avg_scales.count; ++block) {
            EXPECT_EQ(numerics::is_finite(after.exp_avg_scales.get(block)), block != bad);
            EXPECT_EQ(numerics::is_finite(after.exp_avg_sq_scales.get(block)), block != bad);
        }
    }
}

// The test of bitsandbytes with its bound for 8 bits: 100 steps of noise, after each of which the parameters
// are set to those of the run with fp32 moments; the mean error of a step over the mean parameter.
TEST_P(AdamwBlockValues, EightBitMomentsFollowFp32) {
    if (GetParam().label != "reference" && GetParam().threads != 1) {
        GTEST_SKIP() << "skipped: the same bits as with one thread";
    }
    constexpr int64_t kCount = 16384;
    const GroupHyper hyper = {1e-3, 0.9, 0.999, 1e-8, 0.01};
    const HostArray start = generate(kStreamParam, 21, kCount);
    const auto mean_error = [&](Coding coding) {
        Training exact(device(), {fresh_param({}, start)}, hyper, {});
        Training coded(device(),
                       {fresh_param(with_blocks(kF, kF, kNone, kNone, coding, coding), start)},
                       hyper, {});
        double error = 0.0;
        double size = 0.0;
        for (uint64_t step = 1; step <= 100; ++step) {
            for (Training* each : {&exact, &coded}) {
                each->set_grad(generate(kStreamGrad, step, kCount, -6));
                each->step();
            }
            const HostArray expected = exact.download().param;
            const HostArray param = coded.download().param;
            for (int64_t i = 0; i < kCount; ++i) {
                error += std::fabs(static_cast<double>(param.get(i)) -
                                   static_cast<double>(expected.get(i)));
                size += std::fabs(static_cast<double>(expected.get(i)));
            }
            coded.set_param(expected);
        }
        return error / size;
    };
    const double int8 = mean_error(Coding::dynamic8);
    const double fp8 = mean_error(Coding::block);
    const double int4 = mean_error(Coding::dynamic4);
    const double fp8_128 = mean_error(Coding::block128);
    const double root = mean_error(Coding::companded8);
    std::printf("mean errors: int8 %.3g, fp8 %.3g and %.3g, int4 %.3g, companded %.3g\n", int8, fp8,
                fp8_128, int4, root);
    EXPECT_LE(int8, 1.6e-3);
    EXPECT_LE(fp8, 1.6e-3);
    EXPECT_LE(fp8_128, 1.6e-3);
    EXPECT_LE(root, 1.6e-3);
    EXPECT_GT(int4, int8); // that the moments' precision is seen at all
}

// A second moment that became 0 beside a first one that did not would divide by eps alone.
TEST_P(AdamwBlockValues, NothingJumpsWhenGradientsTurnToZero) {
    constexpr int64_t kCount = 4096;
    constexpr double kLr = 1e-3;
    for (const Coding coding : kBlocks) {
        Training training(
            device(),
            {fresh_param(with_blocks(kF, kF, kNone, kNone, coding, coding), HostArray(kF, kCount))},
            {kLr, 0.9, 0.999, 1e-8, 0.0}, {});
        HostArray grad(kF, kCount); // of sizes from 1 to 1e-7 in every block
        for (int64_t i = 0; i < kCount; ++i) {
            grad.set(i, std::pow(10.0F, -7.0F * static_cast<float>(i % 128) / 127.0F));
        }
        training.set_grad(grad);
        training.step();
        training.set_grad(HostArray(kF, kCount));
        for (int32_t step = 0; step < 3; ++step) {
            const HostArray before = training.download().param;
            training.step();
            const HostArray after = training.download().param;
            for (int64_t i = 0; i < kCount; ++i) {
                EXPECT_LE(std::fabs(static_cast<double>(after.get(i)) -
                                    static_cast<double>(before.get(i))),
                          10.0 * kLr)
                    << i << ", coding " << static_cast<int32_t>(coding);
            }
        }
    }
}

MP_ALL_BACKENDS(AdamwBlockValues);

} // namespace
} // namespace mp::test
