// SPDX-License-Identifier: Apache-2.0
// Delayed scales of fp8 layers from step to step, saved and loaded, and what monitors are told of them.
#include <algorithm>

#include "linear_fp8.hpp"

using namespace mp_test;
using namespace mp_test::fp8;

namespace {
struct Fp8LinearScales : Fp8Linear {
    Tensor weight;

    Linear layer(const char* recipe, Sizes layer_sizes, uint32_t flags = 0) {
        use(layer_sizes);
        weight = make_tensor(context, MP_DTYPE_FP32, {sizes.out, sizes.in}, w);
        return make(context, make_recipe(context, recipe), weight, sizes, flags);
    }
};
} // namespace

// The second step's scale is the first step's: what is 64 times larger then saturates.
TEST_F(Fp8LinearScales, DelayedScalesComeFromEarlierSteps) {
    const Linear linear = layer("fp8_delayed", {32, 64, 32}, MP_LINEAR_STATS);
    mp_linear* const layers[] = {linear};
    const Pass first = run(context, linear);
    EXPECT_EQ(difference(first, run_preset("fp8_current")), "") << "its own amax to begin with";
    mp_linear_stats stats{};
    stats.struct_size = sizeof stats;
    MP_OK(mp_linear_get_stats(linear, MP_OPERAND_INPUT, &stats));
    const double first_amax = stats.amax;
    EXPECT_EQ(stats.saturated, 0);
    MP_OK(mp_linear_end_step(layers, 1, nullptr, nullptr));
    MP_OK(mp_linear_get_stats(linear, MP_OPERAND_INPUT, &stats));
    EXPECT_EQ(stats.history_amax, first_amax);
    EXPECT_NEAR(stats.scale_inv, first_amax / 448.0, 1e-6 * first_amax);
    EXPECT_EQ(difference(run(context, linear), first), "") << "the same amax, the same scale";

    for (float& value : x) {
        value *= 64.0F;
    }
    MP_OK(mp_linear_clear_stats(linear, nullptr));
    (void)run(context, linear);
    MP_OK(mp_linear_get_stats(linear, MP_OPERAND_INPUT, &stats));
    EXPECT_GT(stats.saturated, stats.elements / 2);
    char advice[256];
    MP_OK(mp_linear_get_advice(linear, MP_OPERAND_INPUT, advice, sizeof advice, nullptr));
    EXPECT_NE(std::string(advice).find("gemm.margin"), std::string::npos) << advice;
    MP_OK(mp_linear_end_step(layers, 1, nullptr, nullptr));
    MP_OK(mp_linear_clear_stats(linear, nullptr));
    (void)run(context, linear);
    MP_OK(mp_linear_get_stats(linear, MP_OPERAND_INPUT, &stats));
    EXPECT_EQ(stats.saturated, 0);
    MP_OK(mp_linear_get_advice(linear, MP_OPERAND_INPUT, advice, sizeof advice, nullptr));
    EXPECT_STREQ(advice, "");
}

TEST_F(Fp8LinearScales, ScalingStateGoesOnBitForBit) {
    use({32, 64, 32});
    const Recipe recipe = make_recipe(context, "fp8_delayed");
    MP_OK(mp_recipe_set_int(recipe, MP_RECIPE_GEMM_AMAX_HISTORY_LEN, 4));
    weight = make_tensor(context, MP_DTYPE_FP32, {sizes.out, sizes.in}, w);
    const Linear original = make(context, recipe, weight, sizes);
    const Linear copy = make(context, recipe, weight, sizes);
    mp_linear* const layers[] = {original, nullptr, copy};
    const std::vector<float> base = x;
    const auto scale_input = [&](float factor) {
        std::transform(base.begin(), base.end(), x.begin(),
                       [factor](float value) { return value * factor; });
    };
    for (const float factor : {1.0F, 5.0F, 3.0F}) {
        scale_input(factor);
        (void)run(context, original);
        MP_OK(mp_linear_end_step(layers, 1, nullptr, nullptr));
    }
    std::vector<unsigned char> saved = scaling_of(original);
    MP_OK(mp_linear_set_scaling(copy, saved.data(), saved.size()));
    for (const float factor : {2.0F, 1.0F, 1.0F, 1.0F, 0.25F}) {
        scale_input(factor);
        EXPECT_EQ(difference(run(context, original), run(context, copy)), "") << factor;
        MP_OK(mp_linear_end_step(layers, 3, nullptr, nullptr));
    }
    MP_FAILS(mp_linear_set_scaling(copy, saved.data(), saved.size() - 1),
             MP_STATUS_INVALID_ARGUMENT, "history");
    MP_FAILS(mp_linear_set_scaling(copy, saved.data(), 3), MP_STATUS_PARSE_ERROR, "too few");
    saved[0] ^= 0xffU;
    MP_FAILS(mp_linear_set_scaling(copy, saved.data(), saved.size()), MP_STATUS_PARSE_ERROR,
             "none");
}

// A cached weight was converted, and its amax noted, under the state that is replaced.
TEST_F(Fp8LinearScales, LoadedScalingStateCountsForCachedWeightsToo) {
    use({32, 64, 32});
    const Recipe recipe = make_recipe(context, "fp8_delayed");
    weight = make_tensor(context, MP_DTYPE_FP32, {sizes.out, sizes.in}, w);
    const Linear undisturbed = make(context, recipe, weight, sizes, MP_LINEAR_CACHE_WEIGHT);
    const Linear disturbed = make(context, recipe, weight, sizes, MP_LINEAR_CACHE_WEIGHT);
    mp_linear* const layers[] = {undisturbed, disturbed};
    const std::vector<unsigned char> before = scaling_of(disturbed);
    (void)run(context, disturbed);
    MP_OK(mp_linear_set_scaling(disturbed, before.data(), before.size()));
    EXPECT_EQ(difference(run(context, disturbed), run(context, undisturbed)), "");
    MP_OK(mp_linear_end_step(layers, 2, nullptr, nullptr));
    EXPECT_EQ(scaling_of(undisturbed), scaling_of(disturbed));
    EXPECT_NE(scaling_of(undisturbed), before);
}

// A monitor is told the scale of the next step, which follows from this step's amax.
TEST_F(Fp8LinearScales, MonitorIsToldTheNextScale) {
    const Linear linear = layer("fp8_delayed", {32, 64, 32});
    mp_linear* const layers[] = {linear};
    std::vector<mp_linear_stats> told;
    const mp_linear_monitor_fn monitor = [](void* payload, const char*,
                                            const mp_linear_stats* stats, const char*) {
        static_cast<std::vector<mp_linear_stats>*>(payload)->push_back(*stats);
    };
    MP_OK(mp_linear_set_monitor(linear, "layer", 1, monitor, &told));
    (void)run(context, linear);
    MP_OK(mp_linear_end_step(layers, 1, nullptr, nullptr));
    ASSERT_EQ(told.size(), static_cast<std::size_t>(MP_OPERAND_COUNT));
    for (const mp_linear_stats& stats : told) {
        const double largest = stats.operand == MP_OPERAND_GRAD_OUTPUT ? 57344.0 : 448.0;
        EXPECT_GT(stats.amax, 0.0);
        EXPECT_EQ(stats.history_amax, stats.amax);
        EXPECT_NEAR(stats.scale_inv * largest, stats.amax, 1e-6 * stats.amax);
    }
}

TEST_F(Fp8LinearScales, MonitorIsCalledWhenItsStepHasCome) {
    struct Seen {
        int calls = 0;
        int64_t elements = 0;
        std::string names;
    } seen;
    const Linear linear = layer("fp8_block", {32, 64, 32});
    mp_linear_stats stats{};
    stats.struct_size = sizeof stats;
    MP_FAILS(mp_linear_get_stats(linear, MP_OPERAND_INPUT, &stats), MP_STATUS_BAD_STATE,
             "MP_LINEAR_STATS");
    const auto monitor = [](void* payload, const char* name, const mp_linear_stats* info,
                            const char*) {
        auto& target = *static_cast<Seen*>(payload);
        ++target.calls;
        target.elements += info->elements;
        target.names += std::string(name) + std::to_string(info->operand) + " ";
    };
    MP_OK(mp_linear_set_monitor(linear, "fc", 2, monitor, &seen));
    mp_linear* const layers[] = {linear};
    for (int step = 0; step < 4; ++step) {
        (void)run(context, linear);
        MP_OK(mp_linear_end_step(layers, 1, nullptr, nullptr));
        EXPECT_EQ(seen.calls, (step + 1) / 2 * MP_OPERAND_COUNT) << step;
    }
    EXPECT_EQ(seen.names, "fc0 fc1 fc2 fc0 fc1 fc2 ");
    // x and dy are quantized twice a pass, along and across; the weight's blocks are square.
    EXPECT_EQ(seen.elements, 4 * (2 * 32 * 64 + 64 * 32 + 2 * 32 * 32));
    MP_OK(mp_linear_set_monitor(linear, nullptr, 0, nullptr, nullptr));
    (void)run(context, linear);
    MP_OK(mp_linear_end_step(layers, 1, nullptr, nullptr));
    EXPECT_EQ(seen.calls, 2 * MP_OPERAND_COUNT);
    MP_FAILS(mp_linear_set_monitor(linear, "fc", 1, nullptr, nullptr), MP_STATUS_NULL_ARGUMENT,
             "monitor");
    MP_FAILS(mp_linear_get_stats(linear, 3, &stats), MP_STATUS_INVALID_ARGUMENT, "MP_OPERAND");
    MP_FAILS(mp_linear_end_step(layers, -1, nullptr, nullptr), MP_STATUS_INVALID_ARGUMENT, "-1");
}

namespace {

// What a monitor does to its own layer, and how often it and the one after it were called.
struct Told {
    mp_linear* layer = nullptr;
    mp_optimizer* optimizer = nullptr;
    mp_linear_monitor_fn next = nullptr; // null: ends the monitoring
    std::string name;                    // as it was told last
    int first = 0, second = 0;
    mp_status status = MP_STATUS_OK;
};
void tell_second(void* payload, const char*, const mp_linear_stats*, const char*) {
    ++static_cast<Told*>(payload)->second;
}
void tell_first(void* payload, const char* name, const mp_linear_stats*, const char*) {
    Told& told = *static_cast<Told*>(payload);
    ++told.first;
    if (told.optimizer != nullptr) {
        told.status = mp_optimizer_set_linears(told.optimizer, nullptr, 0);
    }
    if (told.status == MP_STATUS_OK) {
        told.status = mp_linear_set_monitor(told.layer, "a name that is longer than the first one",
                                            told.next == nullptr ? 0 : 1, told.next, payload);
    }
    told.name = name;
}

} // namespace

TEST_F(Fp8LinearScales, AMonitorEndsItselfOrSetsAnother) {
    for (const bool by_optimizer : {false, true}) {
        for (const mp_linear_monitor_fn next : {mp_linear_monitor_fn{nullptr}, &tell_second}) {
            const Linear linear = layer("fp8_current", {4, 16, 8}, MP_LINEAR_STATS);
            const Optimizer optimizer =
                make_optimizer(context, make_recipe(context, "fp8_current"));
            Told told;
            told.layer = linear;
            told.next = next;
            told.optimizer = by_optimizer ? optimizer.owned.get() : nullptr;
            mp_linear* const layer = linear;
            MP_OK(mp_linear_set_monitor(layer, "h0", 1, &tell_first, &told));
            if (by_optimizer) {
                MP_OK(mp_optimizer_set_linears(optimizer, &layer, 1));
                EXPECT_TRUE(done(mp_optimizer_step(optimizer, nullptr, nullptr)));
            } else {
                MP_OK(mp_linear_end_step(&layer, 1, nullptr, nullptr));
            }
            MP_OK(told.status);
            EXPECT_EQ(told.first, 1); // no more, as its payload may be gone
            EXPECT_EQ(told.second, 0);
            EXPECT_EQ(told.name, "h0");
            MP_OK(mp_linear_end_step(&layer, 1, nullptr, nullptr));
            EXPECT_EQ(told.first, 1);
            EXPECT_EQ(told.second, next == nullptr ? 0 : MP_OPERAND_COUNT);
        }
    }
}

TEST_F(Fp8LinearScales, TheEndOfAMonitorEndsNoCounting) {
    const Linear linear = layer("fp8_current", {4, 16, 8}, MP_LINEAR_STATS);
    mp_linear_stats stats = MP_LINEAR_STATS_INIT;
    const auto ignore = [](void*, const char*, const mp_linear_stats*, const char*) {};
    MP_OK(mp_linear_set_monitor(linear, "l", 2, ignore, nullptr));
    MP_OK(mp_linear_set_monitor(linear, "", 0, nullptr, nullptr));
    MP_OK(mp_linear_get_stats(linear, MP_OPERAND_INPUT, &stats)); // made with MP_LINEAR_STATS
}
