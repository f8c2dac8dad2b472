// SPDX-License-Identifier: Apache-2.0
// The loss scale against those it imitates: torch.amp.GradScaler and the published rules of
// Megatron-LM, DeepSpeed and apex.amp (tests/fixtures/make_scaler.py), and short golden sequences.
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "../fixture_path.hpp"
#include "harness.hpp"

namespace mp::test {
namespace {

using numerics::LossScaleRule;
using numerics::LossScaleState;

LossScaleRule rule_of(const std::string& model, int32_t interval, int32_t hysteresis) {
    LossScaleRule rule; // torch's
    rule.growth_interval = interval;
    if (model == "apex") {
        rule.max_scale = 0x1p24;
    }
    if (model == "megatron") {
        rule.hysteresis = hysteresis;
        rule.min_scale = 1.0;
    }
    if (model == "deepspeed" || model == "deepspeed_refill") {
        rule.hysteresis = hysteresis;
        rule.min_scale = 1.0;
        rule.count_offset = 1;
        rule.error_at_min = 1;
        rule.refill_on_good_step = model == "deepspeed_refill" ? 1 : 0;
    }
    return rule;
}

LossScaleState initial_state(const LossScaleRule& rule, int32_t log2_init) {
    LossScaleState state;
    state.scale = numerics::exp2_int(log2_init);
    state.hysteresis_tracker = rule.hysteresis;
    return state;
}

int32_t log2_of(float scale) {
    int32_t exponent = 0;
    EXPECT_EQ(std::frexp(scale, &exponent), 0.5F);
    return exponent - 1;
}

// ---- golden sequences on every backend ---------------------------------------------------------

struct Golden {
    const char* model;
    std::array<int32_t, 27> log2_scales;
};

// Interval 4, hysteresis 2, from 2^16; overflows at steps 5, 7, 10, 16, 17, 18 counted from 1.
constexpr std::array<Golden, 5> kGolden = {
    {{"torch", {16, 16, 16, 17, 16, 16, 15, 15, 15, 14, 14, 14, 14, 15,
                15, 14, 13, 12, 12, 12, 12, 13, 13, 13, 13, 14, 14}},
     {"apex", {16, 16, 16, 17, 16, 16, 15, 15, 15, 14, 14, 14, 14, 15,
               15, 14, 13, 12, 12, 12, 12, 13, 13, 13, 13, 14, 14}},
     {"megatron", {16, 16, 16, 17, 17, 17, 16, 16, 16, 15, 15, 15, 15, 16,
                   16, 16, 15, 14, 14, 14, 14, 15, 15, 15, 15, 16, 16}},
     {"deepspeed", {16, 16, 16, 16, 16, 16, 15, 15, 15, 14, 14, 14, 14, 14,
                    15, 15, 14, 13, 13, 13, 13, 13, 14, 14, 14, 14, 15}},
     {"deepspeed_refill", {16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16,
                           17, 17, 16, 15, 15, 15, 15, 15, 16, 16, 16, 16, 17}}}};

class ScalerValues : public BackendTest {};

TEST_P(ScalerValues, GiveTheGoldenSequences) {
    const std::set<int32_t> overflows = {5, 7, 10, 16, 17, 18};
    for (const Golden& golden : kGolden) {
        const LossScaleRule rule = rule_of(golden.model, 4, 2);
        DeviceValue<LossScaleState> state(device(), initial_state(rule, 16));
        for (int32_t step = 1; step <= 27; ++step) {
            LossScaleState current = state.download();
            current.found_inf = overflows.count(step) != 0 ? 1 : 0;
            check(device().device().copy(device().queue(), state.data(), &current, sizeof current,
                                         CopyKind::host_to_device));
            ScalerUpdateDesc op{};
            op.kind = OpKind::scaler_update;
            op.state = state.data();
            op.rule = rule;
            run(device(), *first_candidate(device(), op), op);
            EXPECT_EQ(log2_of(state.download().scale),
                      golden.log2_scales[static_cast<std::size_t>(step - 1)])
                << golden.model << ", step " << step;
        }
    }
}

MP_ALL_BACKENDS(ScalerValues);

// ---- long sequences of the shared function -----------------------------------------------------

struct ScalerCase {
    std::string model;
    int32_t log2_init = 0;
    int32_t interval = 0;
    int32_t hysteresis = 0;
    uint64_t threshold = 0;
    uint64_t seed = 0;
    int64_t steps = 0;
    int32_t raises = 0;
    std::vector<int32_t> log2_scales;
};

std::vector<ScalerCase> read_cases() {
    std::ifstream file(mp_test::fixture_path("scaler/scaler.txt"));
    EXPECT_TRUE(file.good());
    std::vector<ScalerCase> cases;
    for (std::string line; std::getline(file, line);) {
        std::istringstream in(line);
        std::string kind;
        in >> kind;
        if (kind == "case") {
            ScalerCase c;
            in >> c.model >> c.log2_init >> c.interval >> c.hysteresis >> c.threshold >> c.seed >>
                c.steps >> c.raises;
            EXPECT_TRUE(in) << line;
            cases.push_back(c);
        } else if (kind == "scales") {
            int32_t scale = 0;
            char times = 0;
            int32_t length = 0;
            while (in >> scale >> times >> length) {
                cases.back().log2_scales.insert(cases.back().log2_scales.end(),
                                                static_cast<std::size_t>(length), scale);
            }
        }
    }
    return cases;
}

bool has_overflow(const ScalerCase& c, int64_t step) {
    return (numerics::splitmix64((c.seed << 32) + static_cast<uint64_t>(step)) >> 32) < c.threshold;
}

TEST(Scaler, FollowsTheModelsOverTenThousandSteps) {
    const std::vector<ScalerCase> cases = read_cases();
    ASSERT_EQ(cases.size(), 13U);
    for (const ScalerCase& c : cases) {
        SCOPED_TRACE(c.model + ", seed " + std::to_string(c.seed));
        ASSERT_EQ(static_cast<int64_t>(c.log2_scales.size()), c.steps);
        const LossScaleRule rule = rule_of(c.model, c.interval, c.hysteresis);
        LossScaleState state = initial_state(rule, c.log2_init);
        for (int64_t step = 0; step < c.steps; ++step) {
            if (step == c.steps / 2) {
                const LossScaleState saved = state; // a save and a load in mid-window
                state = LossScaleState{};
                state = saved;
            }
            state.found_inf = has_overflow(c, step) ? 1 : 0;
            numerics::update_loss_scale(state, rule);
            ASSERT_EQ(log2_of(state.scale), c.log2_scales[static_cast<std::size_t>(step)])
                << "step " << step;
            ASSERT_EQ(state.failed_at_min, 0U);
        }
        if (c.raises != 0) {
            state.found_inf = has_overflow(c, c.steps) ? 1 : 0;
            numerics::update_loss_scale(state, rule);
            EXPECT_EQ(state.failed_at_min, 1U); // where DeepSpeed raises
        }
        EXPECT_EQ(state.good_steps + state.overflow_steps, c.steps + c.raises);
    }
}

TEST(Scaler, NeverLeavesItsBounds) {
    for (const std::string model : {"torch", "apex", "megatron", "deepspeed"}) {
        const LossScaleRule rule = rule_of(model, 1, 1);
        LossScaleState up = initial_state(rule, 16);
        LossScaleState down = initial_state(rule, 16);
        for (int32_t step = 0; step < 500; ++step) {
            numerics::update_loss_scale(up, rule);
            down.found_inf = 1;
            numerics::update_loss_scale(down, rule);
        }
        EXPECT_TRUE(std::isfinite(up.scale)) << model;
        EXPECT_EQ(up.scale, model == "apex" ? 0x1p24F : 0x1p127F) << model;
        EXPECT_EQ(down.scale, rule.min_scale > 0.0 ? 1.0F : 0x1p-126F) << model;
        EXPECT_TRUE(std::isfinite(1.0F / down.scale)) << model;
    }
}

} // namespace
} // namespace mp::test
