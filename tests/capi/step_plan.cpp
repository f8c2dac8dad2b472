// SPDX-License-Identifier: Apache-2.0
// Steps on the caller's memory with numbers in device memory, of slices, and prepared once.
#include <algorithm>
#include <cmath>
#include <limits>

#include "wrong_calls.hpp"

using namespace mp_test;

namespace {

constexpr std::size_t kCount = 5000;

struct Arrays {
    std::vector<float> p = numbers(kCount, 1);
    std::vector<float> g = numbers(kCount, 2);
    std::vector<float> m = std::vector<float>(kCount);
    std::vector<float> v = std::vector<float>(kCount);

    // Of elements from `first` on.
    mp_step_slot slot(std::size_t first = 0, std::size_t end = kCount) {
        mp_step_slot s = MP_STEP_SLOT_INIT;
        s.count = static_cast<int64_t>(end - first);
        s.uid = 9;
        s.first_element = static_cast<int64_t>(first);
        s.param.data = p.data() + first;
        s.grad.data = g.data() + first;
        s.states[0].data = m.data() + first;
        s.states[1].data = v.data() + first;
        s.param.dtype = s.grad.dtype = s.states[0].dtype = s.states[1].dtype = MP_DTYPE_FP32;
        return s;
    }
    [[nodiscard]] bool operator==(const Arrays&) const = default;
};

struct StepPlanTest : ::testing::Test {
    Context context = make_context();

    StepPlan make(const mp_step_args& args, const mp_step_slot& slot) const {
        mp_step_plan* plan = nullptr;
        EXPECT_TRUE(succeeded(mp_step_plan_create(context, &args, &slot, 1, &plan)));
        return StepPlan(plan);
    }
    mp_status step(const mp_step_args& args, const mp_step_slot& slot,
                   mp_scaler* scaler = nullptr) const {
        return mp_optimizer_step_pointers(context, nullptr, &args, &slot, 1, scaler, nullptr);
    }
    static float largest(const std::vector<float>& values) {
        float result = 0.0F;
        for (const float value : values) {
            result = std::max(result, std::abs(value));
        }
        return result;
    }
};

} // namespace

TEST_F(StepPlanTest, HasTheBitsOfSingleSteps) {
    Arrays single, planned;
    mp_step_args args = MP_STEP_ARGS_INIT;
    args.lr = 1e-3;
    args.step = 3;
    args.max_grad_norm = 1.0;
    args.weight_decay = 0.1;
    const StepPlan plan = make(args, planned.slot());
    for (int i = 0; i < 3; ++i, ++args.step) {
        MP_OK(step(args, single.slot()));
        MP_OK(mp_step_plan_run(plan, nullptr, nullptr));
    }
    EXPECT_EQ(single, planned);
    mp_optimizer_stats stats = MP_OPTIMIZER_STATS_INIT;
    MP_OK(mp_step_plan_get_stats(plan, nullptr, &stats));
    EXPECT_EQ(stats.step, 5);
    EXPECT_GT(stats.grad_norm, 1.0);
    // Another lr from now on.
    args.step = 3;
    args.lr = 0.25;
    MP_OK(mp_step_plan_set_args(plan, nullptr, &args));
    mp_step_args told = MP_STEP_ARGS_INIT;
    MP_OK(mp_step_plan_get_args(plan, &told));
    EXPECT_EQ(told.lr, 0.25);
    EXPECT_EQ(told.hyper_count, 0);
    MP_OK(mp_step_plan_run(plan, nullptr, nullptr));
    args.step = 6;
    MP_OK(step(args, single.slot()));
    EXPECT_EQ(single, planned);
}

TEST_F(StepPlanTest, CountsStepsThatWereTaken) {
    Arrays single, planned;
    const Scaler scaler = make_scaler(context);
    mp_step_args args = MP_STEP_ARGS_INIT;
    args.lr = 1e-3;
    const StepPlan plan = make(args, planned.slot());
    const float good = planned.g[7];
    for (int i = 0; i < 4; ++i) {
        planned.g[7] = i == 1 ? std::numeric_limits<float>::infinity() : good;
        MP_OK(mp_step_plan_run(plan, nullptr, scaler));
        MP_OK(mp_scaler_update(scaler, nullptr));
    }
    mp_optimizer_stats stats = MP_OPTIMIZER_STATS_INIT;
    MP_OK(mp_step_plan_get_stats(plan, nullptr, &stats));
    EXPECT_EQ(stats.step, 3);
    EXPECT_EQ(stats.skipped_steps, 1);
    // The same by a count in the caller's memory, and by hand.
    for (const bool by_pointer : {false, true}) {
        Arrays arrays;
        const Scaler own = make_scaler(context);
        int64_t taken = 0;
        args.step_pointer = by_pointer ? &taken : nullptr;
        for (int i = 0; i < 4; ++i) {
            arrays.g[7] = i == 1 ? std::numeric_limits<float>::infinity() : good;
            if (!by_pointer) {
                args.step = i <= 1 ? i + 1 : i;
            } else {
                args.step = 1;
            }
            MP_OK(step(args, arrays.slot(), own));
            MP_OK(mp_scaler_update(own, nullptr));
        }
        EXPECT_EQ(arrays, planned);
        EXPECT_EQ(taken, by_pointer ? 3 : 0);
    }
}

TEST_F(StepPlanTest, NumbersInDeviceMemoryGiveTheSameBits) {
    Arrays numbers_given, pointers_given;
    mp_step_args args = MP_STEP_ARGS_INIT;
    args.lr = 3e-3;
    args.beta1 = 0.8;
    args.beta2 = 0.99;
    args.eps = 1e-7;
    args.weight_decay = 0.25;
    args.grad_scale = 8.0;
    args.step = 1;
    mp_step_args by_pointer = MP_STEP_ARGS_INIT;
    double hyper[5] = {3e-3, 0.8, 0.99, 1e-7, 0.25};
    float factor = 0.5F;
    int64_t taken = 0;
    by_pointer.hyper_pointer = hyper;
    by_pointer.grad_mul_pointer = &factor;
    by_pointer.step_pointer = &taken;
    by_pointer.grad_scale = 4.0;
    const StepPlan plan = make(by_pointer, pointers_given.slot());
    for (int i = 0; i < 3; ++i, ++args.step) {
        args.lr *= 0.5;
        hyper[0] *= 0.5;
        MP_OK(step(args, numbers_given.slot()));
        MP_OK(mp_step_plan_run(plan, nullptr, nullptr));
        EXPECT_EQ(taken, i + 1);
    }
    EXPECT_EQ(numbers_given, pointers_given);
}

// bf16 weights under stochastic rounding: two slices against the whole.
TEST_F(StepPlanTest, SlicesAreRoundedAsTheWhole) {
    const auto bf16 = [&](const std::vector<float>& values) {
        const Tensor tensor =
            make_tensor(context, MP_DTYPE_BF16, {static_cast<int64_t>(kCount)}, values);
        std::vector<uint16_t> bits(kCount);
        EXPECT_TRUE(succeeded(mp_tensor_read(tensor, nullptr, bits.data(), kCount * 2)));
        return bits;
    };
    Arrays whole, cut;
    std::vector<uint16_t> whole_p = bf16(whole.p), cut_p = whole_p;
    mp_step_args args = MP_STEP_ARGS_INIT;
    args.lr = 1e-3;
    args.flags |= MP_STEP_SR_PARAM;
    args.seed = 77;
    mp_step_slot slot = whole.slot();
    slot.param.data = whole_p.data();
    slot.param.dtype = MP_DTYPE_BF16;
    MP_OK(step(args, slot));
    constexpr std::size_t kCut = 1000;
    mp_step_slot slices[2] = {cut.slot(0, kCut), cut.slot(kCut)};
    slices[0].param.data = cut_p.data();
    slices[1].param.data = cut_p.data() + kCut;
    slices[0].param.dtype = slices[1].param.dtype = MP_DTYPE_BF16;
    MP_OK(mp_optimizer_step_pointers(context, nullptr, &args, slices, 2, nullptr, nullptr));
    EXPECT_EQ(whole_p, cut_p);
    slices[1].first_element = 1004;
    MP_FAILS(mp_optimizer_step_pointers(context, nullptr, &args, slices, 2, nullptr, nullptr),
             MP_STATUS_INVALID_ARGUMENT, "slot 1", "multiple of 8");
}

TEST_F(StepPlanTest, TheAmaxOfTheNewWeights) {
    Arrays arrays;
    const Scaler scaler = make_scaler(context);
    float amax = 0.0F;
    mp_step_slot slot = arrays.slot();
    slot.param.amax = &amax;
    mp_step_args args = MP_STEP_ARGS_INIT;
    args.lr = 1e-3;
    arrays.p[4321] = -7.0F;
    MP_OK(step(args, slot, scaler));
    EXPECT_EQ(amax, largest(arrays.p));
    EXPECT_GT(amax, 6.0F);
    amax = 9.0F; // it only grows
    args.step = 2;
    MP_OK(step(args, slot, scaler));
    EXPECT_EQ(amax, 9.0F);
    amax = 0.0F; // a skipped step leaves it
    arrays.g[1] = std::numeric_limits<float>::quiet_NaN();
    MP_OK(step(args, slot, scaler));
    EXPECT_EQ(amax, 0.0F);
    amax = -1.0F; // what MP_QUANTIZE_CHECK_AMAX leaves counts as none
    arrays.g[1] = 0.0F;
    MP_OK(mp_scaler_update(scaler, nullptr));
    MP_OK(step(args, slot, scaler));
    EXPECT_EQ(amax, largest(arrays.p));
}

TEST_F(StepPlanTest, WrongCalls) {
    using Args = mp_step_args;
    Arrays arrays;
    const Args args = with(Args MP_STEP_ARGS_INIT, &Args::lr, 1e-3);
    const mp_step_slot slot = arrays.slot();
    const StepPlan plan = make(args, slot);
    mp_step_plan* none = nullptr;
    double hyper[5] = {1e-3, 0.9, 0.999, 1e-8, 0.0};
    int64_t taken[2] = {};
    float value[2] = {1.0F, 1.0F};
    auto* const half = reinterpret_cast<int64_t*>(reinterpret_cast<char*>(taken) + 4);
    mp_step_slot odd = slot;
    odd.param.amax = reinterpret_cast<float*>(reinterpret_cast<char*>(value) + 2);
    const auto given = [&](auto... fields) { return step(with(args, fields...), slot); };
    const auto set = [&](auto... fields) {
        const Args other = with(args, fields...);
        return mp_step_plan_set_args(plan, nullptr, &other);
    };
    expect_refused<MP_STATUS_INVALID_ARGUMENT>({
        {"lr twice",
         given(&Args::hyper_pointer, hyper, &Args::lr_pointer, value),
         {"lr_pointer", "hyper_pointer"}},
        {"a step twice", given(&Args::step_pointer, taken, &Args::step, 5), {"step_pointer"}},
        {"half a step",
         given(&Args::step, 1, &Args::step_pointer, half),
         {"step_pointer", "8 bytes"}},
        {"half an amax", step(args, odd), {"slot 0", "param.amax"}},
        {"element -8", step(args, with(slot, &mp_step_slot::first_element, -8)), {"first_element"}},
        {"another rule", set(&Args::rule, MP_RULE_ADAM), {"rule"}},
        {"another step", set(&Args::step, 4), {"step"}},
        {"other flags", set(&Args::flags, args.flags | MP_OPTIMIZER_ZERO_GRAD), {"ZERO_GRAD"}},
        {"lr -1", set(&Args::lr, -1.0), {"lr"}},
        {"-1 slots", mp_step_plan_create(context, &args, &slot, -1, &none), {"slot_count"}},
    });
    MP_FAILS(mp_step_plan_create(context, &args, nullptr, 1, &none), MP_STATUS_NULL_ARGUMENT,
             "slots");
}

// A forgotten learning rate is told of; one by name is meant, and comes back with the arguments.
TEST_F(StepPlanTest, ALearningRateOfZero) {
    Arrays arrays;
    const mp_step_slot slot = arrays.slot();
    mp_step_args args = MP_STEP_ARGS_INIT;
    MP_FAILS(step(args, slot), MP_STATUS_WARNING, "lr is 0", "hypers");
    args.step = 2;
    MP_OK(step(args, slot));
    args.step = 1;
    std::string name = "lr";
    const mp_hyper named = {name.c_str(), 0.0};
    args.hypers = &named;
    args.hyper_count = 1;
    const std::vector<float> before = arrays.p;
    MP_OK(step(args, slot));
    EXPECT_EQ(arrays.p, before);
    const StepPlan plan = make(args, slot);
    name = "gone"; // names are not the caller's any more
    mp_step_args told = MP_STEP_ARGS_INIT;
    MP_OK(mp_step_plan_get_args(plan, &told));
    ASSERT_EQ(told.hyper_count, 1);
    EXPECT_STREQ(told.hypers[0].name, "lr");
    EXPECT_EQ(told.hypers[0].value, 0.0);
    told.lr = 0.5; // a zero by name gives way
    MP_OK(mp_step_plan_set_args(plan, nullptr, &told));
    MP_OK(mp_step_plan_run(plan, nullptr, nullptr));
    EXPECT_NE(arrays.p, before);
}
