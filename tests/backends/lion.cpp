// SPDX-License-Identifier: Apache-2.0
// Lion: against trajectories of optax.lion (tests/fixtures/make_lion.py); every candidate against the reference; and
// hyperparameters that it does not have.
#include <cmath>

#include "optim/step_memory.hpp"
#include "step_case.hpp"
#include "trajectory.hpp"

namespace mp::test {
namespace {

using numerics::RuleId;

constexpr DType kF = DType::fp32;
constexpr DType kH = DType::fp16;
constexpr DType kB = DType::bf16;
constexpr DType kNone = DType::none;

GroupHyper lion(double lr, double beta1, double beta2, double decay) {
    GroupHyper hyper = {lr, beta1, beta2, 0.0, decay};
    hyper.rule = RuleId::lion;
    return hyper;
}

class Lion : public AdamwStep {};

// Where the mean of gradients is so near to 0 that roundings decide its sign, a weight differs by two steps; such
// gradients do not occur here.
TEST_P(Lion, EqualsOptax) {
    static const AdamwFixture fixture("lion");
    for (const char* name : {"usual", "exact"}) {
        const FixtureCase& c = fixture.at(name);
        const Layout layout = {c.param, c.grad, c.exp_avg, c.exp_avg_sq, c.compensation, kNone, {}};
        GroupHyper hyper = c.hyper;
        hyper.rule = RuleId::lion;
        Training training(device(),
                          {fresh_param(layout, generate(kStreamParam, 0, c.count, c.exponent))},
                          hyper, {});
        for (int64_t step = 1; step <= 1000; ++step) {
            training.set_grad(generate(kStreamGrad, static_cast<uint64_t>(step), c.count));
            training.step();
            if (!fixture.has(name, step, 'p')) {
                continue;
            }
            SCOPED_TRACE(std::string(name) + ", step " + std::to_string(step));
            const ParamArrays ours = training.download();
            const HostArray p = fixture.array(name, step, 'p');
            const HostArray m = fixture.array(name, step, 'm');
            for (int64_t i = 0; i < c.count; ++i) {
                ASSERT_NEAR(ours.param.get(i), p.get(i), 2e-6 * std::fabs(p.get(i)) + 1e-7) << i;
                ASSERT_NEAR(ours.exp_avg.get(i), m.get(i), 1e-6 * std::fabs(m.get(i)) + 1e-7) << i;
            }
        }
    }
}

TEST_P(Lion, MovesByTheSignAlone) {
    StepCase c;
    c.hyper = {lion(0.25, 0.0, 0.0, 0.0)};
    ParamArrays a = make_param({kF, kF, kF, kNone, kNone, kNone, {}}, 5, Content::normal, 1);
    const float grads[] = {1e-30F, -1e30F, 0.0F, -0.0F, 3.0F};
    const float moves[] = {-0.25F, 0.25F, 0.0F, 0.0F, -0.25F};
    for (int64_t i = 0; i < 5; ++i) {
        a.param.set(i, 1.0F);
        a.grad.set(i, grads[i]);
    }
    c.params = {a};
    const ParamArrays after = step(c)[0];
    for (int64_t i = 0; i < 5; ++i) {
        EXPECT_EQ(after.param.get(i), 1.0F + moves[i]) << i;
        EXPECT_EQ(after.exp_avg.get(i), grads[i]) << i;
    }
}

MP_ALL_BACKENDS(Lion);

std::vector<Layout> lion_layouts() {
    Layout remainder = {kB, kB, kF, kNone, kNone, DType::int16, {}};
    remainder.master_coding = Coding::remainder;
    const ScaleInvs scales = {0x1p-3F, 0x1p-5F, 0x1p-7F, 0.0F, 0.0F};
    Layout blocks = {kB, kF, DType::uint8, kNone, kB, kNone, {}, Coding::dynamic8};
    return {{kF, kF, kF, kNone, kNone, kNone, {}},
            {kB, kB, kB, kNone, kNone, kNone, {}}, // those with rows of their own
            {kB, kB, kB, kNone, kB, kNone, {}},
            {kB, kB, DType::fp8_e4m3, kNone, kNone, kNone, {}, Coding::block},
            {kB, kF, kF, kNone, kNone, kF, {}},
            {kH, kH, kB, kNone, kH, kNone, {}},
            {kH, DType::fp8_e4m3, DType::fp8_e4m3, kNone, kNone, kNone, scales},
            remainder,
            blocks};
}

class LionCandidates : public AdamwComparison {};

TEST_P(LionCandidates, EqualTheReferenceForEveryLayoutAndRounding) {
    for (const Content content : kAllContents) {
        for (uint32_t bits = 0; bits < 16; ++bits) {
            if ((bits & 4U) != 0) {
                continue; // there is no second moment to round
            }
            SCOPED_TRACE(std::string(content_name(content)) + ", flags " + std::to_string(bits));
            StepCase c = with_flags(bits);
            c.hyper = {lion(1e-2, 0.9, 0.99, 0.1), lion(1e-3, 0.0, 0.5, 0.0)};
            c.hyper[1].maximize = true;
            uint64_t seed = 7000;
            for (const Layout& layout : lion_layouts()) {
                const bool is_nearest_only =
                    ((bits & 1U) != 0 && layout.master_coding == Coding::remainder) ||
                    ((bits & 2U) != 0 && layout.exp_avg_coding == Coding::dynamic8);
                for (int32_t group = 0; group < 2 && !is_nearest_only; ++group) {
                    c.params.push_back(make_param(layout, 777, content, seed++));
                    c.params.back().group = group;
                }
            }
            compare(c);
        }
    }
}

// Beside AdamW in one launch: each segment by the rule of its group.
TEST_P(LionCandidates, StandBesideOtherRules) {
    StepCase c = with_flags(0);
    c.hyper = three_groups();
    c.hyper[0].rule = RuleId::adam;
    c.hyper[1] = lion(1e-3, 0.9, 0.99, 0.1);
    for (const DType dtype : {kF, kB}) {
        for (int32_t group = 0; group < 3; ++group) {
            const DType second = group == 1 ? kNone : dtype;
            c.params.push_back(make_param({dtype, dtype, dtype, second, kNone, kNone, {}}, 1000,
                                          Content::normal, static_cast<uint64_t>(80 + group)));
            c.params.back().group = group;
        }
    }
    compare(c);
}

MP_COMPARE_BACKENDS(LionCandidates);

TEST(LionHyper, RefusesWhatItDoesNotHave) {
    GroupHyper hyper = lion(1e-4, 0.9, 0.99, 0.1);
    EXPECT_NO_THROW(optim::check_hyper(hyper));
    hyper.eps = 1e-6;
    EXPECT_THROW(optim::check_hyper(hyper), Error);
    hyper.eps = 0.0;
    hyper.bias_correction = false;
    EXPECT_THROW(optim::check_hyper(hyper), Error);
    hyper = {};
    hyper.rule = static_cast<RuleId>(77);
    EXPECT_THROW(optim::check_hyper(hyper), Error);
}

TEST(LionSegments, HaveOneState) {
    float memory[8] = {};
    UpdateSegment s;
    s.count = 1;
    s.param = {&memory[0], nullptr, kF, Coding::plain};
    s.grad = {&memory[1], nullptr, kF, Coding::plain};
    s.states[0] = {&memory[2], nullptr, kF, Coding::plain};
    EXPECT_NO_THROW(optim::check_segment(s, "here", RuleId::lion));
    EXPECT_THROW(optim::check_segment(s, "here", RuleId::adamw), Error);
    s.states[1] = {&memory[3], nullptr, kF, Coding::plain};
    EXPECT_NO_THROW(optim::check_segment(s, "here", RuleId::adamw));
    EXPECT_THROW(optim::check_segment(s, "here", RuleId::lion), Error);
}

} // namespace
} // namespace mp::test
