// SPDX-License-Identifier: Apache-2.0
// Parameters that are added between steps: each one's bias correction begins with it, whatever its group has counted.
#include <cmath>
#include <string>

#include "support.hpp"

using namespace mp_test;

namespace {

constexpr int64_t kCount = 300;

// Two groups; every parameter has the same first values, and the same gradient in a step.
struct Grown {
    Context context;
    Recipe recipe;
    Optimizer optimizer;
    std::vector<Tensor> params;
    std::vector<Tensor> grads;

    Grown(const char* name, uint32_t flags, int32_t rule, const char* backend)
        : context(make_context(2, backend)), recipe(make_recipe(context, name)) {
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.flags = flags;
        optimizer = make_optimizer(context, recipe, desc);
        for (int32_t group = 0; group < 2; ++group) {
            mp_param_group_desc of_group = MP_PARAM_GROUP_DESC_INIT;
            of_group.rule = rule;
            EXPECT_TRUE(done(mp_optimizer_add_group(optimizer, &of_group, nullptr)));
        }
    }
    std::size_t add(int32_t group) {
        const std::vector<float> values = numbers(kCount, 1);
        const Tensor exact = make_tensor(context, MP_DTYPE_FP32, {kCount}, values);
        mp_tensor* raw = nullptr;
        EXPECT_TRUE(
            succeeded(mp_recipe_create_weight(context, recipe, 1, &kCount, values.data(), &raw)));
        params.emplace_back(raw);
        const std::string name = "p" + std::to_string(params.size());
        mp_param_desc desc = MP_PARAM_DESC_INIT;
        desc.name = name.c_str();
        desc.param = params.back();
        desc.init_fp32 = exact;
        int32_t index = -1;
        EXPECT_TRUE(succeeded(mp_optimizer_add_param(optimizer, group, &desc, &index)));
        EXPECT_TRUE(succeeded(mp_optimizer_get_state(optimizer, index, "grad", &raw)));
        grads.emplace_back(raw);
        return params.size() - 1;
    }
    void step(uint64_t seed) {
        const Tensor exact = make_tensor(context, MP_DTYPE_FP32, {kCount}, numbers(kCount, seed));
        for (const Tensor& grad : grads) {
            EXPECT_TRUE(succeeded(mp_tensor_cast(exact, nullptr, grad, nullptr)));
        }
        EXPECT_TRUE(succeeded(mp_optimizer_step(optimizer, nullptr, nullptr)));
    }
    void steps(uint64_t first, uint64_t end) {
        for (; first < end; ++first) {
            step(first);
        }
    }
    int64_t t(int32_t group) {
        int64_t step = -1;
        EXPECT_TRUE(succeeded(mp_optimizer_get_group_step(optimizer, nullptr, group, &step)));
        return step;
    }
    std::vector<unsigned char> bytes(std::size_t index) { return bytes_of(params[index]); }
};

struct Kind {
    const char* recipe;
    uint32_t flags;
    int32_t rule;
    const char* backend;
};

constexpr Kind kKinds[] = {
    {"fp32", 0, MP_RULE_ADAMW, "host"},
    {"fp32", 0, MP_RULE_ADAM, "reference"},
#if MP_HAS_KOKKOS
    {"fp32", 0, MP_RULE_ADAMW, "kokkos"},
#endif
    {"fp32", MP_OPTIMIZER_OFFLOAD, MP_RULE_ADAMW, nullptr},
    {"bf16_pure_kahan", 0, MP_RULE_ADAMW, "reference"},
    {"bf16_mixed", 0, MP_RULE_ADAMW, nullptr},
    {"bf16_pure_remainder", MP_OPTIMIZER_CHECK_FINITE, MP_RULE_ADAMW, nullptr}};

} // namespace

// Of two that come between the same steps, of one that comes later, and of those in a group that was off: the steps of a new
// optimizer, from the step that each came in.
TEST(LateParameters, TakeTheStepsOfANewOptimizer) {
    for (const Kind& kind : kKinds) {
        SCOPED_TRACE(std::string(kind.recipe) + (kind.backend != nullptr ? kind.backend : ""));
        const auto fresh = [&](uint64_t first, uint64_t end) {
            Grown run(kind.recipe, kind.flags, kind.rule, kind.backend);
            run.add(0);
            run.steps(first, end);
            return run.bytes(0);
        };
        Grown run(kind.recipe, kind.flags, kind.rule, kind.backend);
        const std::size_t whole = run.add(0);
        run.add(1);
        run.steps(1, 6);
        const std::size_t second = run.add(0), twin = run.add(0);
        run.steps(6, 9);
        MP_OK(mp_optimizer_set_enabled(run.optimizer, 1, 0));
        const std::size_t third = run.add(0), waits = run.add(1);
        EXPECT_EQ(run.t(0), 8);
        run.steps(9, 11);
        MP_OK(mp_optimizer_set_enabled(run.optimizer, 1, 1));
        run.steps(11, 13);
        EXPECT_EQ(run.t(0), 12); // of those it began with
        EXPECT_EQ(run.t(1), 10);
        EXPECT_EQ(run.bytes(whole), fresh(1, 13));
        EXPECT_EQ(run.bytes(second), fresh(6, 13));
        EXPECT_EQ(run.bytes(twin), run.bytes(second));
        EXPECT_EQ(run.bytes(third), fresh(9, 13));
        EXPECT_EQ(run.bytes(waits), fresh(11, 13));
    }
}

TEST(LateParameters, HaveTheCountThatIsSetForTheirGroup) {
    for (const bool all : {false, true}) {
        Grown run("fp32", 0, MP_RULE_ADAMW, nullptr);
        const std::size_t first = run.add(0);
        run.step(1);
        const std::size_t late = run.add(0);
        MP_OK(all ? mp_optimizer_set_step(run.optimizer, nullptr, 40)
                  : mp_optimizer_set_group_step(run.optimizer, nullptr, 0, 40));
        const std::vector<float> before_first = values_of(run.context, run.params[first]);
        run.step(2);
        EXPECT_EQ(run.t(0), 41);
        // With states of zero at t = 41, the step is as long as the two corrections make it.
        const float moved = values_of(run.context, run.params[late])[0] - numbers(kCount, 1)[0];
        EXPECT_NEAR(std::abs(moved),
                    1e-3 * 0.1 / (1.0 - std::pow(0.9, 41)) /
                        std::sqrt(0.001 / (1.0 - std::pow(0.999, 41))),
                    1e-5);
        EXPECT_NE(values_of(run.context, run.params[first]), before_first);
    }
}

// To go on where another program stopped: the count is set first, and the first parameter of the group has it.
TEST(LateParameters, ACountThatWasSetBeforeThemIsTheFirstOnes) {
    Grown run("fp32", 0, MP_RULE_ADAMW, nullptr);
    MP_OK(mp_optimizer_set_step(run.optimizer, nullptr, 40));
    run.add(0);
    EXPECT_EQ(run.t(0), 40);
    run.step(1);
    EXPECT_EQ(run.t(0), 41);
    EXPECT_EQ(run.t(1), 40); // nobody is in it
}
