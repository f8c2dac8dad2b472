// SPDX-License-Identifier: Apache-2.0
// Delayed scaling against the golden sequences of Transformer Engine and MS-AMP.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <deque>
#include <vector>

#include "edges.hpp"
#include "numerics/delayed_scaling.hpp"

namespace mp::test {
namespace {

using namespace numerics;

using History = std::vector<float>;

// One tensor's state, fed an amax a step.
struct Tensor {
    explicit Tensor(const DelayedRule& with)
        : rule(with), history(static_cast<std::size_t>(with.history_len), 0.0F) {}

    float feed(float amax) {
        state.amax = amax;
        update_delayed(state, history.data(), rule);
        EXPECT_EQ(state.amax, 0.0F);
        EXPECT_TRUE(std::isfinite(state.multiply) && state.multiply > 0);
        return state.multiply;
    }
    std::vector<float> feed_all(const std::vector<float>& amaxes) {
        std::vector<float> scales;
        for (const float amax : amaxes) {
            scales.push_back(feed(amax));
        }
        return scales;
    }

    DelayedRule rule;
    DelayedState state;
    History history;
};

DelayedRule transformer_engine(int32_t length, int32_t margin = 0) {
    DelayedRule rule;
    rule.history_len = length;
    rule.policy = scale_policy(ScaleRule::current, DType::fp8_e4m3, margin);
    return rule;
}

DelayedRule msamp(int32_t window) {
    DelayedRule rule;
    rule.history_len = window;
    rule.warm_up = window;
    rule.non_finite = NonFiniteAmax::restart;
    rule.rolls_on_zero = true;
    rule.policy = scale_policy(ScaleRule::msamp, DType::fp8_e4m3);
    return rule;
}

// Its own behaviour, bit for bit: an infinity enters the history and freezes the scale.
TEST(DelayedScaling, GivesTransformerEnginesSequence) {
    DelayedRule rule = transformer_engine(4);
    rule.non_finite = NonFiniteAmax::keep;
    Tensor tensor(rule);
    EXPECT_EQ(tensor.feed_all({2, 0, 1, kInf}), (std::vector<float>{224, 224, 224, 224}));
    EXPECT_EQ(tensor.history, (History{0, 2, 1, kInf}));
    EXPECT_EQ(tensor.feed_all({.5F, .5F, .5F}), (std::vector<float>{224, 224, 224}));
    EXPECT_EQ(tensor.history, (History{0, .5F, .5F, .5F}));
    EXPECT_EQ(tensor.feed(.5F), 896.0F);
}

// What is not finite never enters: the scale follows the amaxes that are, as soon as they allow.
TEST(DelayedScaling, AnInfinityDoesNotFreezeTheScale) {
    for (const float odd : {kInf, kNan}) {
        Tensor tensor(transformer_engine(4));
        EXPECT_EQ(tensor.feed_all({2, 0, 1, odd}), (std::vector<float>{224, 224, 224, 224}));
        EXPECT_EQ(tensor.history, (History{0, 0, 2, 1}));
        EXPECT_EQ(tensor.feed_all({.5F, .5F, .5F, .5F}), (std::vector<float>{224, 224, 448, 896}));
    }
    // At the usual length one infinity would cost 1023 updates.
    Tensor tensor(transformer_engine(1024));
    tensor.feed_all({1, kInf, 2});
    EXPECT_EQ(tensor.state.multiply, 224.0F);
    for (const float value : tensor.history) {
        EXPECT_TRUE(std::isfinite(value));
    }
}

TEST(DelayedScaling, MarginDividesByItsPowerOfTwo) {
    Tensor plain(transformer_engine(4));
    Tensor with_margin(transformer_engine(4, 2));
    for (const float amax : {2.0F, 3.0F, 0.1F, 1e-3F}) {
        EXPECT_EQ(with_margin.feed(amax) * 4.0F, plain.feed(amax));
    }
}

TEST(DelayedScaling, TinyAmaxGivesTheLargestScale) {
    Tensor tensor(transformer_engine(1));
    EXPECT_EQ(tensor.feed(1e-37F), std::bit_cast<float>(0x7F7FFFFFU));
}

TEST(DelayedScaling, MostRecentFollowsAtOnce) {
    DelayedRule rule = transformer_engine(8);
    rule.algo = AmaxAlgo::most_recent;
    Tensor tensor(rule);
    EXPECT_EQ(tensor.feed_all({4, 2, 0, 1, kInf, 8}),
              (std::vector<float>{112, 224, 224, 448, 448, 56}));
}

// A state may come with its amax in the history instead of in itself; a reduced amax goes before.
TEST(DelayedScaling, TakesTheAmaxFromTheHistoryWhereTheSlotHasNone) {
    Tensor tensor(transformer_engine(3));
    tensor.history = {4, 1, 1};
    EXPECT_EQ(tensor.feed(0), 112.0F);
    EXPECT_EQ(tensor.history, (History{0, 1, 4}));
    tensor.history = {4, 1, 1};
    EXPECT_EQ(tensor.feed(2), 224.0F);
}

TEST(DelayedScaling, IntervalSkipsScalesButNotAmaxes) {
    DelayedRule rule = transformer_engine(4);
    rule.interval = 3;
    Tensor tensor(rule);
    EXPECT_EQ(tensor.feed_all({2, 8, 4, 1, 1, 1, 1}),
              (std::vector<float>{224, 224, 224, 56, 56, 56, 448}));
    EXPECT_EQ(tensor.state.updates, 7);
}

// Against a plain window of the last L amaxes, for lengths 1, 31 and 1024.
TEST(DelayedScaling, ScaleIsThatOfTheWindowsMaximum) {
    for (const int32_t length : {1, 2, 31, 1024}) {
        Tensor tensor(transformer_engine(length));
        std::deque<float> window;
        uint32_t state = 12345;
        for (int step = 0; step < 2200; ++step) {
            state = state * 1664525U + 1013904223U;
            const float amax = state % 7 == 0 ? 0.0F : static_cast<float>(state >> 8) * 0x1p-20F;
            const float before = tensor.state.multiply;
            const float scale = tensor.feed(amax);
            if (amax == 0.0F) {
                ASSERT_EQ(scale, before);
                continue;
            }
            window.push_back(amax);
            if (window.size() > static_cast<std::size_t>(length)) {
                window.pop_front();
            }
            ASSERT_EQ(scale, 448.0F / *std::max_element(window.begin(), window.end()));
        }
    }
}

// amax 5, 3, 2, 1, 1, ...: 16 steps by each one's own amax, then by the window's largest.
TEST(DelayedScaling, GivesMsampsSequence) {
    Tensor tensor(msamp(16));
    std::vector<float> used;
    for (int step = 0; step < 21; ++step) {
        const float amax =
            step < 3 ? std::vector<float>{5, 3, 2}[static_cast<std::size_t>(step)] : 1.0F;
        const bool in_time = tensor.state.updates < tensor.rule.warm_up;
        EXPECT_EQ(in_time, step < 16);
        used.push_back(in_time ? block_scale(tensor.rule.policy, amax, 1.0F, amax).multiply
                               : tensor.state.multiply);
        tensor.feed(amax);
    }
    std::vector<float> expected = {64, 128, 128};
    expected.insert(expected.end(), 13, 256.0F);
    expected.insert(expected.end(), {64, 128, 128, 256, 256});
    EXPECT_EQ(used, expected);
}

// 0, 1, ... 16 six times: the window holds the last 16 amaxes, a zero too. A NaN at step 20 counts as
// 0, starts the warm-up anew, and leaves the scale finite.
TEST(DelayedScaling, MsampsWindowHoldsTheLastSixteen) {
    Tensor tensor(msamp(16));
    std::deque<float> window;
    for (int step = 0; step < 6 * 17; ++step) {
        float amax = static_cast<float>(step % 17);
        if (step == 20) {
            amax = kNan;
        }
        const float before = tensor.state.multiply;
        const float scale = tensor.feed(amax);
        window.push_back(step == 20 ? 0.0F : amax);
        if (window.size() > 16) {
            window.pop_front();
        }
        const float largest = *std::max_element(window.begin(), window.end());
        ASSERT_EQ(scale, largest == 0.0F
                             ? before
                             : block_scale(tensor.rule.policy, largest, 1.0F, 0.0F).multiply);
        EXPECT_EQ(tensor.state.updates, step < 20 ? step + 1 : step - 20);
        EXPECT_EQ(tensor.state.updates < tensor.rule.warm_up,
                  step < 15 || (step >= 20 && step < 36));
    }
}

} // namespace
} // namespace mp::test
