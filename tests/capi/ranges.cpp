// SPDX-License-Identifier: Apache-2.0
// Numbers at the ends of a format's range: kept, refused where they enter, or told of. States of gradients that are large and
// small through steps, files and conversions. What layers count and say of theirs: layer_counts.cpp.
#include <cmath>
#include <limits>

#include "optimizers.hpp"
#include "training.hpp"

using namespace mp_test;

namespace {

constexpr const char* kFormats[] = {"fp8_e4m3_block256", "fp8_e4m3_block128", "int8_block256",
                                    "int8_companded32", "int4_block128"};

std::string recipe_text(const std::string& format) {
    return R"({"recipe": "fp32", "optimizer.block_min_elements": 1, "optimizer.exp_avg.dtype": ")" +
           format + R"(", "optimizer.exp_avg_sq.dtype": ")" + format + "\"}";
}

// One parameter, and a checkpoint of its optimizer.
struct Stepped {
    static constexpr int64_t kCount = 4096;
    Context context = make_context(1);
    Recipe recipe;
    Optimizer optimizer;
    Tensor grad = make_tensor(context, MP_DTYPE_FP32, {kCount});
    Checkpoint checkpoint;

    explicit Stepped(const std::string& text) : recipe(recipe_of(context, text)) {
        optimizer = make_optimizer(context, recipe);
        EXPECT_TRUE(succeeded(mp_optimizer_add_group(optimizer, nullptr, nullptr)));
        const Tensor param = make_tensor(context, MP_DTYPE_FP32, {kCount});
        EXPECT_TRUE(succeeded(add_param(optimizer, 0, "w", param, grad)));
        checkpoint = checkpoint_of(context, optimizer);
    }
    void steps(int count, float unit) {
        for (int i = 0; i < count; ++i) {
            std::vector<float> values = numbers(kCount, static_cast<uint64_t>(i) + 1, unit);
            ASSERT_TRUE(succeeded(
                mp_tensor_write(grad, nullptr, values.data(), values.size() * sizeof(float))));
            ASSERT_TRUE(succeeded(mp_optimizer_step(optimizer, nullptr, nullptr)));
        }
    }
    std::vector<float> read(const char* state) const {
        const Tensor values = make_tensor(context, MP_DTYPE_FP32, {kCount});
        EXPECT_TRUE(succeeded(mp_optimizer_read_state(optimizer, nullptr, 0, state, values)));
        return values_of(context, values);
    }
};

double norm(const std::vector<float>& values) {
    double sum = 0.0;
    for (const float value : values) {
        sum += double{value} * double{value};
    }
    return std::sqrt(sum);
}

} // namespace

// Gradients of every size that fp32's squares hold: weights as with fp32 states, and what is saved loads.
TEST(Ranges, StatesInBlocksOfLargeAndSmallGradients) {
    for (const float unit : {1e-15F, 1e-7F, 1e-3F, 1e5F, 1e6F, 1e12F, 1e18F}) {
        Stepped exact(R"({"recipe": "fp32"})");
        exact.steps(20, unit);
        const double right = norm(exact.read("fp32_param"));
        for (const char* format : kFormats) {
            SCOPED_TRACE(std::string(format) + ", gradients of " + std::to_string(unit));
            Stepped run(recipe_text(format));
            run.steps(20, unit);
            // The same for every unit: int4's second moments alone are far off, they have no zero.
            EXPECT_NEAR(norm(run.read("fp32_param")) / right, 1.0,
                        std::string(format) == "int4_block128" ? 0.35 : 0.1);
            const Folder folder("ranges");
            MP_OK(mp_checkpoint_save(run.checkpoint, folder.c_str(), 1, 0));
            Stepped same(recipe_text(format));
            MP_OK(mp_checkpoint_load(same.checkpoint, folder.c_str(), 0, nullptr));
            EXPECT_EQ(same.read("exp_avg"), run.read("exp_avg"));
            EXPECT_EQ(same.read("exp_avg_sq"), run.read("exp_avg_sq"));
            Stepped other(recipe_text("int8_companded32"));
            MP_OK(mp_checkpoint_load(other.checkpoint, folder.c_str(), MP_LOAD_CONVERT, nullptr));
            EXPECT_NEAR(norm(other.read("exp_avg")) / norm(run.read("exp_avg")), 1.0, 0.02);
        }
    }
}

// Whatever finite state is written comes back within a step of the codes.
TEST(Ranges, StatesThatAreWritten) {
    for (const char* format : kFormats) {
        Stepped run(recipe_text(format));
        for (int decade = -37; decade <= 38; ++decade) {
            const auto largest = static_cast<float>(3.0 * std::pow(10.0, decade));
            std::vector<float> values(Stepped::kCount, largest);
            const Tensor tensor =
                make_tensor(run.context, MP_DTYPE_FP32, {Stepped::kCount}, values);
            for (const char* state : {"exp_avg", "exp_avg_sq"}) {
                MP_OK(mp_optimizer_write_state(run.optimizer, nullptr, 0, state, tensor));
                for (const float value : run.read(state)) {
                    ASSERT_NEAR(value / largest, 1.0F, decade < -34 ? 0x1p-4F : 0x1p-6F)
                        << format << ' ' << largest;
                }
            }
        }
    }
}

TEST(Ranges, StepsOnPointersWithNumbersThatAreNone) {
    const Context context = make_context(1);
    std::vector<float> p(64, 1.0F), g(64, 1.0F), m(64), v(64);
    mp_step_slot slot = MP_STEP_SLOT_INIT;
    slot.count = 64;
    slot.param.data = p.data();
    slot.grad.data = g.data();
    slot.states[0].data = m.data();
    slot.states[1].data = v.data();
    slot.param.dtype = slot.grad.dtype = slot.states[0].dtype = slot.states[1].dtype =
        MP_DTYPE_FP32;
    const auto step = [&](const mp_step_args& args, mp_optimizer_stats* stats = nullptr) {
        return mp_optimizer_step_pointers(context, nullptr, &args, &slot, 1, nullptr, stats);
    };
    mp_step_args args = MP_STEP_ARGS_INIT;
    args.lr = 1e-3;
    args.grad_scale = 1e-45;
    MP_FAILS(step(args), MP_STATUS_INVALID_ARGUMENT, "grad_scale is", "fp32");
    args.grad_scale = 1.0;
    int64_t count = -1;
    args.step_pointer = &count;
    MP_FAILS(step(args), MP_STATUS_INVALID_ARGUMENT, "step_pointer", "-1");
    count = 0;
    mp_step_plan* raw = nullptr;
    MP_OK(mp_step_plan_create(context, &args, &slot, 1, &raw));
    const StepPlan plan(raw);
    count = -7;
    MP_FAILS(mp_step_plan_run(plan, nullptr, nullptr), MP_STATUS_INVALID_ARGUMENT, "-7");
    count = 0;
    // Nobody looks at these beforehand: the step is skipped.
    for (const float factor : {0.0F, 1e-45F, std::numeric_limits<float>::quiet_NaN()}) {
        args.grad_scale_pointer = &factor;
        mp_optimizer_stats stats = MP_OPTIMIZER_STATS_INIT;
        MP_OK(step(args, &stats));
        EXPECT_EQ(stats.skipped_steps, 1) << factor;
        EXPECT_EQ(stats.found_inf, 0U);
    }
    EXPECT_EQ(p, std::vector<float>(64, 1.0F));
    EXPECT_EQ(count, 0);
}

namespace {

// Two slots of bf16 weights with fp32 moments.
struct BfSlots {
    Context context = make_context(1);
    std::vector<uint16_t> p = std::vector<uint16_t>(128, 0x3f80), g = p;
    std::vector<float> m = std::vector<float>(128), v = m;
    mp_step_slot slots[2] = {MP_STEP_SLOT_INIT, MP_STEP_SLOT_INIT};

    BfSlots() {
        for (std::size_t i = 0; i < 2; ++i) {
            slots[i].count = 64;
            slots[i].param.data = p.data() + 64 * i;
            slots[i].grad.data = g.data() + 64 * i;
            slots[i].states[0].data = m.data() + 64 * i;
            slots[i].states[1].data = v.data() + 64 * i;
            slots[i].param.dtype = slots[i].grad.dtype = MP_DTYPE_BF16;
            slots[i].states[0].dtype = slots[i].states[1].dtype = MP_DTYPE_FP32;
        }
    }
};

} // namespace

TEST(Ranges, StepsOnPointersThatAreToldOf) {
    BfSlots two;
    mp_step_slot(&slots)[2] = two.slots;
    mp_context* const context = two.context;
    const auto step = [&](const mp_step_args& args) {
        return mp_optimizer_step_pointers(context, nullptr, &args, slots, 2, nullptr, nullptr);
    };
    mp_step_args args = MP_STEP_ARGS_INIT;
    args.lr = 1e-3;
    MP_OK(step(args)); // nothing is random
    args.flags |= MP_STEP_SR_PARAM;
    MP_FAILS(step(args), MP_STATUS_WARNING, "uid 0", "random bits");
    args.step = 2;
    MP_OK(step(args)); // told once
    args.step = 1;
    slots[1].first_element = 64; // two slices of one parameter
    MP_OK(step(args));
    slots[1].first_element = 56;
    MP_FAILS(step(args), MP_STATUS_WARNING, "uid 0");
    slots[1].uid = 1;
    MP_OK(step(args));
    const mp_hyper no_eps = {"eps", 0.0};
    const auto set_eps = [&](double eps) { // 0 is meant
        args.eps = eps;
        args.hypers = eps == 0.0 ? &no_eps : nullptr;
        args.hyper_count = eps == 0.0 ? 1 : 0;
    };
    set_eps(0.0);
    MP_FAILS(step(args), MP_STATUS_WARNING, "eps is 0", "NaN");
    mp_step_plan* plan = nullptr;
    MP_FAILS(mp_step_plan_create(context, &args, slots, 2, &plan), MP_STATUS_WARNING, "eps is 0");
    MP_OK(mp_step_plan_set_args(plan, nullptr, &args)); // told already
    slots[1].uid = 0;
    args.flags &= ~MP_STEP_SR_PARAM;
    set_eps(1e-8);
    MP_OK(mp_step_plan_set_args(plan, nullptr, &args));
    set_eps(0.0);
    MP_FAILS(mp_step_plan_set_args(plan, nullptr, &args), MP_STATUS_WARNING, "eps is 0");
    mp_step_plan_destroy(plan);
    // The count at an address is the one that says which step is the first.
    int64_t count = 0;
    args.step_pointer = &count;
    for (const int64_t step_beside : {0, 1}) {
        args.step = step_beside;
        count = 0;
        MP_FAILS(step(args), MP_STATUS_WARNING, "eps is 0");
        EXPECT_EQ(count, 1);
        MP_OK(step(args));
    }
    set_eps(1e-8);
    count = 0;
    for (mp_step_slot& slot : slots) {
        slot.states[1].dtype = MP_DTYPE_FP16;
    }
    MP_FAILS(step(args), MP_STATUS_WARNING, "fp16 second moments");
}

TEST(Ranges, Fp16SecondMomentsOfAGroupAreToldOf) {
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "fp32");
    const Optimizer optimizer = make_optimizer(context, recipe);
    mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
    group.state_formats[1] = "fp16";
    MP_FAILS(mp_optimizer_add_group(optimizer, &group, nullptr), MP_STATUS_WARNING,
             "fp16 second moments");
}

TEST(Ranges, AnEpsOfZeroIsToldOfOnce) {
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "fp32");
    const Optimizer optimizer = make_optimizer(context, recipe);
    mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
    const mp_hyper no_eps = {"eps", 0.0};
    group.hypers = &no_eps;
    group.hyper_count = 1;
    MP_OK(mp_optimizer_add_group(optimizer, &group, nullptr));
    const Tensor param = make_tensor(context, MP_DTYPE_FP32, {64}, numbers(64, 1));
    const Tensor grad = make_tensor(context, MP_DTYPE_FP32, {64}, numbers(64, 2));
    MP_OK(add_param(optimizer, 0, "w", param, grad));
    MP_FAILS(mp_optimizer_step(optimizer, nullptr, nullptr), MP_STATUS_WARNING, "eps is 0", "NaN");
    MP_OK(mp_optimizer_step(optimizer, nullptr, nullptr));
}

TEST(Ranges, RecipesWithNarrowStatesAreToldOf) {
    const Context context = make_context(1);
    const auto validate = [&](const char* json) {
        mp_recipe* recipe = nullptr;
        EXPECT_TRUE(succeeded(mp_recipe_create_from_json(context, json, SIZE_MAX, &recipe)));
        return mp_recipe_validate(Recipe(recipe));
    };
    MP_FAILS(validate(R"({"recipe": "bf16_pure", "optimizer.exp_avg_sq.dtype": "fp16"})"),
             MP_STATUS_WARNING, "2.4e-4", "256");
    MP_FAILS(validate(R"({"recipe": "bf16_pure", "optimizer.compensation.dtype": "fp16",
                          "optimizer.exp_avg_sq.dtype": "fp32"})"),
             MP_STATUS_WARNING, "compensation", "decay");
}
