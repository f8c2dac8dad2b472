// SPDX-License-Identifier: Apache-2.0
// delayed_update on every backend: update_delayed() for each state in the device's memory.
#include "harness.hpp"

namespace mp::test {
namespace {

using numerics::DelayedRule;
using numerics::DelayedState;

constexpr int32_t kStates = 5;
constexpr int64_t kSteps = 40;

std::vector<DelayedRule> all_rules() {
    std::vector<DelayedRule> rules;
    for (const int32_t length : {1, 4, 16}) {
        for (int32_t bits = 0; bits < 8; ++bits) {
            DelayedRule rule;
            rule.history_len = length;
            rule.algo = (bits & 1) != 0 ? numerics::AmaxAlgo::most_recent : numerics::AmaxAlgo::max;
            rule.interval = (bits & 2) != 0 ? 3 : 1;
            rule.rolls_on_zero = (bits & 4) != 0;
            rule.non_finite = static_cast<numerics::NonFiniteAmax>(bits % 3);
            rule.policy = numerics::scale_policy((bits & 4) != 0 ? numerics::ScaleRule::msamp
                                                                 : numerics::ScaleRule::current,
                                                 DType::fp8_e4m3, bits);
            rules.push_back(rule);
        }
    }
    return rules;
}

// What a step's casts leave: mostly numbers, now and then zero, infinity or NaN.
float amax_at(int64_t step, int32_t state) {
    const uint64_t h = numerics::splitmix64(static_cast<uint64_t>(step * kStates + state));
    switch (h % 11) {
    case 0:
        return 0.0F;
    case 1:
        return numerics::float_from_bits(numerics::kFloatInfinity);
    case 2:
        return numerics::float_from_bits(numerics::kFloatQuietNan);
    default:
        return static_cast<float>(h >> 40) * 0x1p-12F;
    }
}

class DelayedUpdate : public BackendTest {};

TEST_P(DelayedUpdate, GivesEachSlotItsUpdate) {
    for (const DelayedRule& rule : all_rules()) {
        for_each_candidate(device(), OpKind::delayed_update, [&](const Candidate& candidate) {
            std::vector<DelayedState> expected(kStates);
            HostArray history(DType::fp32, int64_t{kStates} * rule.history_len);
            auto* expected_history = reinterpret_cast<float*>(history.bytes.data());
            DeviceBytes states(device(), expected.data(), kStates * sizeof(DelayedState));
            DeviceArray histories(device(), history);
            DelayedUpdateDesc op{};
            op.kind = OpKind::delayed_update;
            op.states = states.as<DelayedState>();
            op.histories = static_cast<float*>(histories.data());
            op.state_count = kStates;
            op.rule = rule;
            EXPECT_TRUE(supports(device(), candidate, op));
            for (int64_t step = 0; step < kSteps; ++step) {
                for (int32_t i = 0; i < kStates; ++i) {
                    expected[static_cast<std::size_t>(i)].amax = amax_at(step, i);
                }
                check(device().device().copy(device().queue(), states.data(), expected.data(),
                                             kStates * sizeof(DelayedState),
                                             CopyKind::host_to_device));
                run(device(), candidate, op);
                for (int32_t i = 0; i < kStates; ++i) {
                    numerics::update_delayed(expected[static_cast<std::size_t>(i)],
                                             expected_history + i * rule.history_len, rule);
                }
                std::vector<DelayedState> result(kStates);
                states.download(result.data());
                EXPECT_EQ(
                    std::memcmp(result.data(), expected.data(), kStates * sizeof(DelayedState)), 0)
                    << "step " << step;
            }
            EXPECT_EQ(histories.download().bytes, history.bytes);
            return true;
        });
    }
}

TEST_P(DelayedUpdate, RefusesNoHistory) {
    for_each_candidate(device(), OpKind::delayed_update, [&](const Candidate& candidate) {
        DelayedUpdateDesc op{};
        op.kind = OpKind::delayed_update;
        op.rule.history_len = 0;
        EXPECT_FALSE(supports(device(), candidate, op));
        return true;
    });
}

MP_ALL_BACKENDS(DelayedUpdate);

} // namespace
} // namespace mp::test
