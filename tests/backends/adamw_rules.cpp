// SPDX-License-Identifier: Apache-2.0
// Adam with L2 beside AdamW, maximize, steps without bias correction, and master weights kept as remainders or whole.
#include <cmath>

#include "adamw_oracle.hpp"
#include "numerics/remainder.hpp"
#include "trajectory.hpp"

namespace mp::test {
namespace {

constexpr DType kF = DType::fp32;
constexpr DType kH = DType::fp16;
constexpr DType kB = DType::bf16;
constexpr DType kNone = DType::none;

Layout remainder_layout(DType grad, DType moments) {
    Layout layout = {kB, grad, moments, moments, kNone, DType::int16, {}};
    layout.master_coding = Coding::remainder;
    return layout;
}

Layout half_away_layout(DType grad, DType moments) {
    Layout layout = {kB, grad, moments, moments, kNone, kF, {}};
    layout.half_away = true;
    return layout;
}

std::vector<Layout> rule_layouts() {
    Layout scaled = {kH,
                     DType::fp8_e4m3,
                     DType::fp8_e4m3,
                     kH,
                     kNone,
                     kNone,
                     {0x1p-3F, 0x1p-5F, 0x1p-7F, 0x1p-9F, 0.0F}};
    Layout blocks = {kB,    kF, DType::uint8,     DType::uint8,    kB,
                     kNone, {}, Coding::dynamic8, Coding::dynamic8};
    return {{},
            {kB, kB, kB, kB, kNone, kNone, {}}, // those with rows of their own
            {kB, kB, kB, kB, kB, kNone, {}},
            {kB, kF, kF, kF, kNone, kF, {}},
            {kH, kH, kF, kB, kH, kNone, {}},
            {kF, kF, kF, kF, kF, kNone, {}},
            remainder_layout(kF, kF),
            remainder_layout(kB, kB),
            half_away_layout(kF, kF),
            half_away_layout(kB, kH),
            scaled,
            blocks};
}

std::vector<GroupHyper> rule_groups() {
    std::vector<GroupHyper> groups = three_groups();
    groups[0].rule = numerics::RuleId::adam;
    groups[1].maximize = true;
    groups[1].bias_correction = false;
    groups[2].rule = numerics::RuleId::adam;
    groups[2].maximize = true;
    return groups;
}

class AdamwRules : public AdamwComparison {};

TEST_P(AdamwRules, EqualsTheReferenceForEveryRuleLayoutAndContent) {
    for (const Content content : kAllContents) {
        for (const uint32_t bits : {0U, 8U}) {
            SCOPED_TRACE(std::string(content_name(content)) + ", flags " + std::to_string(bits));
            StepCase c = with_flags(bits);
            c.hyper = rule_groups();
            uint64_t seed = 6000;
            for (const Layout& layout : rule_layouts()) {
                for (int32_t group = 0; group < 3; ++group) {
                    c.params.push_back(make_param(layout, 777, content, seed++));
                    c.params.back().group = group;
                }
            }
            compare(c);
        }
    }
}

TEST_P(AdamwRules, EqualsTheReferenceForRemaindersOfEverySize) {
    for (const int64_t count : kSizes) {
        StepCase c = with_flags(0);
        c.params.push_back(make_param(remainder_layout(kB, kF), count, Content::normal, 75));
        compare(c);
    }
}

MP_COMPARE_BACKENDS(AdamwRules);

// ---- what must hold, whoever computes it -------------------------------------------------------

class AdamwRuleValues : public AdamwStep {};

void expect_near(const HostArray& expected, const HostArray& actual) {
    ASSERT_EQ(expected.count, actual.count);
    for (int64_t i = 0; i < expected.count; ++i) {
        const auto x = static_cast<double>(expected.get(i));
        ASSERT_NEAR(static_cast<double>(actual.get(i)), x, 1e-6 * std::fabs(x) + 1e-7) << i;
    }
}

TEST_P(AdamwRuleValues, FollowsTorchsAdamAndMaximize) {
    const AdamwFixture& fixture = states_fixture();
    for (const char* name : {"torch_adam", "torch_adam_maximize", "torch_adamw_maximize"}) {
        SCOPED_TRACE(name);
        GroupHyper hyper = fixture.at(name).hyper;
        hyper.rule = std::string(name) != "torch_adamw_maximize" ? numerics::RuleId::adam
                                                                 : numerics::RuleId::adamw;
        hyper.maximize = std::string(name) != "torch_adam";
        Training training(device(), {fresh_param({}, fixture.array(name, 0, 'p'))}, hyper, {});
        for (int64_t step = 1; fixture.has(name, step, 'g'); ++step) {
            training.set_grad(fixture.array(name, step, 'g'));
            training.step();
            if (fixture.has(name, step, 'p')) {
                const ParamArrays result = training.download();
                expect_near(fixture.array(name, step, 'p'), result.param);
                expect_near(fixture.array(name, step, 'm'), result.exp_avg);
                expect_near(fixture.array(name, step, 'v'), result.exp_avg_sq);
            }
        }
    }
}

TEST_P(AdamwRuleValues, WithoutBiasCorrectionTheFirstStepIsShort) {
    GroupHyper hyper = {1e-3, 0.9, 0.999, 0.0, 0.0};
    hyper.bias_correction = false;
    Training training(device(), {fresh_param({}, constant(kF, 1, 0.0F))}, hyper, {});
    training.set_grad(constant(kF, 1, 0.5F));
    training.step();
    // m = 0.1 g, sqrt(v) = sqrt(0.001) |g|
    EXPECT_NEAR(training.download().param.get(0), -1e-3 * 0.1 / std::sqrt(0.001), 1e-9);
}

// Weight decay in the gradient is divided by its root mean square, in 8 bits too.
TEST_P(AdamwRuleValues, L2IsNotDecoupledDecay) {
    for (const Coding coding : {Coding::plain, Coding::dynamic8}) {
        const DType moments = coding == Coding::plain ? kF : DType::uint8;
        const Layout layout = {kF, kF, moments, moments, kNone, kNone, {}, coding, coding};
        if (!takes(device(), GetParam(), fresh_param(layout, HostArray(kF, 1)))) {
            continue;
        }
        std::vector<HostArray> params;
        for (const bool l2 : {false, true}) {
            GroupHyper hyper = {1e-3, 0.9, 0.999, 1e-8, 0.1};
            hyper.rule = l2 ? numerics::RuleId::adam : numerics::RuleId::adamw;
            Training training(device(), {fresh_param(layout, generate(kStreamParam, 5, 300))},
                              hyper, {});
            training.set_grad(generate(kStreamGrad, 5, 300));
            training.steps(3);
            params.push_back(training.download().param);
        }
        int64_t differing = 0;
        for (int64_t i = 0; i < 300; ++i) {
            differing += params[0].get(i) != params[1].get(i) ? 1 : 0;
        }
        EXPECT_GT(differing, 250);
    }
}

// 1000 steps: parameter and remainder joined are an fp32 parameter's bits.
TEST_P(AdamwRuleValues, ARemainderIsTheFp32MasterWeight) {
    constexpr int64_t kCount = 515;
    const HostArray start = generate(kStreamParam, 0, kCount);
    const GroupHyper hyper = {1e-4, 0.9, 0.999, 1e-8, 0.01};
    const Layout fp32 = {kF, kB, kF, kF, kNone, kNone, {}};
    Training exact(device(), {fresh_param(fp32, start)}, hyper, {});
    ParamArrays split = fresh_param(fp32, start);
    split.param = HostArray(kB, kCount);
    split.master = HostArray(DType::int16, kCount);
    split.master_coding = Coding::remainder;
    for (int64_t i = 0; i < kCount; ++i) {
        const numerics::SplitMaster s = numerics::split_master(start.get(i));
        split.param.set_code(i, s.param);
        split.master.set_code(i, static_cast<uint16_t>(s.remainder));
    }
    Training joined(device(), {split}, hyper, {});
    for (uint64_t step = 1; step <= 1000; ++step) {
        for (Training* each : {&exact, &joined}) {
            each->set_grad(generate(kStreamGrad, step % 17, kCount, 0, kB));
            each->step();
        }
    }
    const ParamArrays expected = exact.download();
    const ParamArrays actual = joined.download();
    EXPECT_EQ(expected.exp_avg.bytes, actual.exp_avg.bytes);
    EXPECT_EQ(expected.exp_avg_sq.bytes, actual.exp_avg_sq.bytes);
    for (int64_t i = 0; i < kCount; ++i) {
        const float master = numerics::join_master(static_cast<uint16_t>(actual.param.code(i)),
                                                   static_cast<int16_t>(actual.master.code(i)));
        EXPECT_EQ(numerics::bits_from_float(master), expected.param.code(i)) << i;
    }
}

// Around every half of some bf16 numbers, of both signs, up to what rounds to infinity. The step leaves the master
// weights where they are.
ParamArrays master_around_halves() {
    std::vector<uint32_t> bits;
    for (const uint32_t upper :
         {0x0000U, 0x0001U, 0x007fU, 0x3f7fU, 0x3f80U, 0x3f81U, 0x7f7eU, 0x7f7fU}) {
        for (const uint32_t lower : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
            bits.push_back(upper << 16 | lower);
            bits.push_back(0x80000000U | upper << 16 | lower);
        }
    }
    ParamArrays a =
        make_param(half_away_layout(kF, kF), static_cast<int64_t>(bits.size()), Content::normal, 3);
    for (std::size_t i = 0; i < bits.size(); ++i) {
        a.master.set_code(static_cast<int64_t>(i), bits[i]);
    }
    return a;
}

TEST_P(AdamwRuleValues, HalvesGoAwayFromZeroBesideAnFp32Master) {
    StepCase c;
    c.hyper = {{0.0, 0.9, 0.999, 1e-8, 0.0}};
    c.params = {master_around_halves()};
    const ParamArrays result = step(c)[0];
    for (int64_t i = 0; i < result.count(); ++i) {
        const float master = result.master.get(i);
        EXPECT_EQ(master, c.params[0].master.get(i));
        EXPECT_EQ(result.param.code(i), oracle::nearest_bf16_half_away(master)) << master;
    }
    EXPECT_EQ(oracle::nearest_bf16_half_away(0x1.01p+0F), 0x3f81U); // to even it would be 0x3f80
}

// Where it cannot be meant it is refused, by every candidate.
TEST_P(AdamwRuleValues, HalvesAwayFromZeroAreForBf16BesideAnFp32Master) {
    Layout no_master = {kB, kF, kF, kF, kNone, kNone, {}};
    Layout fp16 = {kH, kF, kF, kF, kNone, kF, {}};
    no_master.half_away = fp16.half_away = true;
    for (const Layout& layout : {no_master, fp16, half_away_layout(kF, kF)}) {
        StepCase c = with_flags(layout.param == kB && layout.master == kF ? 1U : 0U); // stochastic
        c.params = {make_param(layout, 5, Content::normal, 1)};
        const CandidateList list = device().device().candidates(OpKind::optimizer_update);
        std::vector<ParamArrays> result;
        for (int32_t i = 0; i < list.count; ++i) {
            EXPECT_FALSE(adamw(device(), list.items[i], c, result)) << list.items[i].name;
        }
    }
}

MP_ALL_BACKENDS(AdamwRuleValues);

} // namespace
} // namespace mp::test
