// SPDX-License-Identifier: Apache-2.0
// scaler_update on every backend: update_loss_scale() on the device's memory, for all kinds of rules.
#include "harness.hpp"

namespace mp::test {
namespace {

using numerics::LossScaleRule;
using numerics::LossScaleState;

std::vector<LossScaleRule> all_rules() {
    std::vector<LossScaleRule> rules;
    for (const int32_t hysteresis : {1, 2, 5}) {
        for (uint32_t bits = 0; bits < 16; ++bits) {
            LossScaleRule rule;
            rule.growth_interval = 3;
            rule.hysteresis = hysteresis;
            rule.count_offset = static_cast<int32_t>(bits & 1U);
            rule.refill_on_good_step = (bits >> 1) & 1U;
            rule.error_at_min = (bits >> 2) & 1U;
            rule.min_scale = (bits & 4U) != 0 ? 16384.0 : 0.0;
            rule.max_scale = (bits & 8U) != 0 ? 100000.0 : 0.0;
            rule.growth_factor = (bits & 8U) != 0 ? 1.7 : 2.0;
            rule.backoff_factor = (bits & 8U) != 0 ? 0.3 : 0.5;
            rules.push_back(rule);
        }
    }
    rules.emplace_back();
    rules.back().is_dynamic = 0;
    return rules;
}

ScalerUpdateDesc describe(const LossScaleRule& rule, LossScaleState* state) {
    ScalerUpdateDesc op{};
    op.kind = OpKind::scaler_update;
    op.state = state;
    op.rule = rule;
    return op;
}

// found_inf as a device or another rank would set it, from a fixed sequence.
std::vector<LossScaleState> run_sequence(TestDevice& on, const Candidate& candidate,
                                         const LossScaleRule& rule) {
    LossScaleState initial;
    initial.scale = 65536.0F;
    initial.hysteresis_tracker = rule.hysteresis;
    DeviceValue<LossScaleState> state(on, initial);
    std::vector<LossScaleState> states;
    for (uint64_t step = 0; step < 60; ++step) {
        LossScaleState current = state.download();
        current.found_inf = numerics::splitmix64(step) % 5 == 0 ? 1 : 0;
        check(on.device().copy(on.queue(), state.data(), &current, sizeof current,
                               CopyKind::host_to_device));
        run(on, candidate, describe(rule, state.data()));
        states.push_back(state.download());
    }
    return states;
}

class ScalerUpdate : public BackendTest {};

TEST_P(ScalerUpdate, EqualsTheReference) {
    for (const LossScaleRule& rule : all_rules()) {
        const std::vector<LossScaleState> expected =
            run_sequence(reference_device(), reference_candidate(OpKind::scaler_update), rule);
        const int32_t supporting =
            for_each_candidate(device(), OpKind::scaler_update, [&](const Candidate& candidate) {
                if (!supports(device(), candidate, describe(rule, nullptr))) {
                    return false;
                }
                const std::vector<LossScaleState> result = run_sequence(device(), candidate, rule);
                for (std::size_t i = 0; i < expected.size(); ++i) {
                    EXPECT_EQ(std::memcmp(&expected[i], &result[i], sizeof expected[i]), 0)
                        << "step " << i << ": scale " << result[i].scale << " instead of "
                        << expected[i].scale;
                }
                return true;
            });
        EXPECT_GT(supporting, 0);
    }
}

MP_COMPARE_BACKENDS(ScalerUpdate);

class ScalerUpdateValues : public BackendTest {
  protected:
    LossScaleState update(const LossScaleRule& rule, const LossScaleState& before) {
        DeviceValue<LossScaleState> state(device(), before);
        run(device(), device().device().candidates(OpKind::scaler_update).items[0],
            describe(rule, state.data()));
        return state.download();
    }
};

TEST_P(ScalerUpdateValues, BacksOffGrowsAndForgetsFoundInf) {
    LossScaleRule rule;
    rule.growth_interval = 2;
    LossScaleState state;
    state.scale = 8.0F;
    state.found_inf = 1;
    state = update(rule, state);
    EXPECT_EQ(state.scale, 4.0F);
    EXPECT_EQ(state.found_inf, 0U);
    EXPECT_EQ(state.overflow_steps, 1);
    state = update(rule, update(rule, state));
    EXPECT_EQ(state.scale, 8.0F);
    EXPECT_EQ(state.good_steps, 2);
}

TEST_P(ScalerUpdateValues, NeverBecomesInfiniteNorTooSmallToInvert) {
    LossScaleRule rule;
    rule.growth_interval = 1;
    LossScaleState state;
    state.scale = 0x1p127F;
    state = update(rule, state);
    EXPECT_EQ(state.scale, 0x1p127F);
    state.scale = 0x1p-126F;
    state.found_inf = 1;
    state = update(rule, state);
    EXPECT_EQ(state.scale, 0x1p-126F);
    rule.min_scale = 1.0;
    rule.error_at_min = 1;
    state.scale = 1.0F;
    state.found_inf = 1;
    state = update(rule, state);
    EXPECT_EQ(state.scale, 1.0F);
    EXPECT_EQ(state.failed_at_min, 1U);
}

TEST_P(ScalerUpdateValues, LeavesAStaticScaleAlone) {
    LossScaleRule rule;
    rule.is_dynamic = 0;
    LossScaleState state;
    state.scale = 128.0F;
    state.found_inf = 1;
    state = update(rule, state);
    EXPECT_EQ(state.scale, 128.0F);
    EXPECT_EQ(state.found_inf, 0U);
    EXPECT_EQ(state.overflow_steps, 1);
}

MP_ALL_BACKENDS(ScalerUpdateValues);

} // namespace
} // namespace mp::test
