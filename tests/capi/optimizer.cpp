// SPDX-License-Identifier: Apache-2.0
// The optimizer object: groups, states, skipped steps, clipping, and the same bits for every thread count. The arithmetic itself
// is tested over every backend in tests/backends.
#include <cmath>
#include <limits>

#include "optimizers.hpp"

using namespace mp_test;

namespace {

const char* const kRecipes[] = {"fp32",      "fp16_mixed",   "bf16_mixed",     "bf16_mixed_dual",
                                "bf16_pure", "bf16_pure_sr", "bf16_pure_kahan"};
const char* const kStates[] = {"param", "grad", "exp_avg", "exp_avg_sq", "compensation", "master"};
constexpr int64_t kSizes[] = {1, 7, 4097, 40000};

// An optimizer over a few odd-sized parameters, with the gradients of a step written by step().
struct Training {
    Context context;
    Recipe recipe;
    Optimizer optimizer;

    Training(const char* name, int32_t threads, const mp_optimizer_desc& desc,
             const char* backend = nullptr)
        : context(make_context(threads, backend)), recipe(make_recipe(context, name)),
          optimizer(make_optimizer(context, recipe, desc)) {
        const int32_t decay = add_group(optimizer), plain = add_group(optimizer, 3e-3, 0.0);
        for (const int64_t size : kSizes) {
            const auto init =
                make_tensor(context, MP_DTYPE_FP32, {size},
                            numbers(static_cast<std::size_t>(size), static_cast<uint64_t>(size)));
            const Tensor param = make_tensor(context, weight_dtype(recipe), {size});
            EXPECT_TRUE(succeeded(add_param(optimizer, size % 2 == 0 ? decay : plain,
                                            std::to_string(size).c_str(), param, nullptr, init)));
        }
    }

    void write_grads(uint64_t seed, float scale = 1.0F) {
        for (int32_t i = 0; i < 4; ++i) {
            std::vector<float> values = numbers(static_cast<std::size_t>(kSizes[i]),
                                                seed * 10 + static_cast<uint64_t>(i), scale);
            const Tensor exact = make_tensor(context, MP_DTYPE_FP32, {kSizes[i]}, values);
            const Tensor grad = state_of(optimizer, i, "grad");
            round_into(exact, grad);
        }
    }

    // Every state of every parameter, one after another.
    std::vector<unsigned char> all_bits() {
        std::vector<unsigned char> bits;
        for (int32_t i = 0; i < 4; ++i) {
            for (const char* name : kStates) {
                mp_tensor* raw = nullptr;
                if (mp_optimizer_get_state(optimizer, i, name, &raw) == MP_STATUS_OK) {
                    const Tensor tensor(raw);
                    const auto bytes = bytes_of(tensor);
                    bits.insert(bits.end(), bytes.begin(), bytes.end());
                }
            }
        }
        return bits;
    }
};

} // namespace

TEST(Optimizer, BitsDoNotDependOnThreadsOrBackend) {
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    desc.seed = 1234;
    desc.max_grad_norm = 1.0;
    for (const char* name : kRecipes) {
        std::vector<unsigned char> first;
        for (const int32_t threads : {1, 2, 3, -1}) {
            Training run(name, threads < 0 ? 1 : threads, desc,
                         threads < 0 ? "reference" : nullptr);
            for (uint64_t step = 1; step <= 5; ++step) {
                run.write_grads(step);
                MP_OK(mp_optimizer_step(run.optimizer, nullptr, nullptr));
            }
            if (first.empty()) {
                first = run.all_bits();
            } else {
                ASSERT_EQ(run.all_bits(), first)
                    << name << " with " << threads << " threads (-1: reference)";
            }
        }
    }
}

TEST(Optimizer, SkippedStepChangesNothing) {
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    desc.flags = MP_OPTIMIZER_CHECK_FINITE;
    for (const char* name : kRecipes) {
        for (const float poison :
             {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
            Training run(name, 2, desc);
            run.write_grads(1);
            MP_OK(mp_optimizer_step(run.optimizer, nullptr, nullptr));
            run.write_grads(2);
            const Tensor grad = state_of(run.optimizer, 3, "grad");
            std::vector<float> values = values_of(run.context, grad);
            values[39999] = poison;
            const Tensor exact = make_tensor(run.context, MP_DTYPE_FP32, {40000}, values);
            round_into(exact, grad);
            const auto before = run.all_bits();
            MP_OK(mp_optimizer_step(run.optimizer, nullptr, nullptr));
            ASSERT_EQ(run.all_bits(), before) << name;
            const mp_optimizer_stats stats = stats_of(run.optimizer);
            EXPECT_EQ(stats.step, 1);
            EXPECT_EQ(stats.skipped_steps, 1);
            EXPECT_EQ(stats.found_inf, 1U);
        }
    }
}

TEST(Optimizer, ScalerIsDividedOutAndToldOfOverflow) {
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    desc.max_grad_norm = 0.5;
    Training plain("fp32", 1, desc), scaled("fp32", 1, desc);
    mp_scaler_desc scaler_desc = MP_SCALER_DESC_INIT;
    scaler_desc.init_scale = 1024;
    const Scaler scaler = make_scaler(scaled.context, &scaler_desc);
    plain.write_grads(1);
    scaled.write_grads(1, 1024.0F);
    MP_OK(mp_optimizer_step(plain.optimizer, nullptr, nullptr));
    MP_OK(mp_optimizer_step(scaled.optimizer, nullptr, scaler));
    EXPECT_EQ(stats_of(plain.optimizer).grad_norm, stats_of(scaled.optimizer).grad_norm);
    for (int32_t i = 0; i < 4; ++i) { // a power of two: the same bits
        EXPECT_EQ(bytes_of(state_of(plain.optimizer, i, "param")),
                  bytes_of(state_of(scaled.optimizer, i, "param")));
    }
    MP_OK(mp_scaler_update(scaler, nullptr));
    scaled.write_grads(2, std::numeric_limits<float>::infinity());
    MP_OK(mp_optimizer_step(scaled.optimizer, nullptr, scaler));
    MP_OK(mp_scaler_update(scaler, nullptr));
    double scale = 0;
    MP_OK(mp_scaler_get_scale(scaler, nullptr, &scale));
    EXPECT_EQ(scale, 512);
    EXPECT_EQ(stats_of(scaled.optimizer).step, 1);
}

TEST(Optimizer, NormAndClip) {
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    desc.max_grad_norm = 2.0;
    Training run("fp32", 2, desc);
    run.write_grads(7);
    double sum = 0;
    for (int32_t i = 0; i < 4; ++i) {
        for (const float value : values_of(run.context, state_of(run.optimizer, i, "grad"))) {
            sum += static_cast<double>(value) * static_cast<double>(value);
        }
    }
    MP_OK(mp_optimizer_step(run.optimizer, nullptr, nullptr));
    const mp_optimizer_stats stats = stats_of(run.optimizer);
    EXPECT_NEAR(stats.grad_norm, std::sqrt(sum), 1e-12 * std::sqrt(sum));
    EXPECT_NEAR(stats.grad_mul, 2.0 / (std::sqrt(sum) + 1e-6), 1e-12);
    run.write_grads(7, 1e-6F); // below the limit: left alone
    MP_OK(mp_optimizer_step(run.optimizer, nullptr, nullptr));
    EXPECT_EQ(stats_of(run.optimizer).grad_mul, 1.0);
}

TEST(Optimizer, ZeroGradFoldedOrAskedFor) {
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    desc.flags = MP_OPTIMIZER_ZERO_GRAD;
    Training folded("bf16_pure", 2, desc),
        plain("bf16_pure", 2, mp_optimizer_desc MP_OPTIMIZER_DESC_INIT);
    folded.write_grads(1);
    plain.write_grads(1);
    MP_OK(mp_optimizer_step(folded.optimizer, nullptr, nullptr));
    MP_OK(mp_optimizer_step(plain.optimizer, nullptr, nullptr));
    EXPECT_NE(folded.all_bits(), plain.all_bits());
    MP_OK(mp_optimizer_zero_grad(plain.optimizer, nullptr));
    EXPECT_EQ(folded.all_bits(), plain.all_bits());
    for (const unsigned char byte : bytes_of(state_of(folded.optimizer, 3, "grad"))) {
        ASSERT_EQ(byte, 0);
    }
}

TEST(Optimizer, LearningRateStepCountAndLateParameters) {
    Training run("fp32", 1, mp_optimizer_desc MP_OPTIMIZER_DESC_INIT);
    run.write_grads(1);
    MP_OK(mp_optimizer_set_lr(run.optimizer, -1, 0.0));
    const auto before = bytes_of(state_of(run.optimizer, 2, "param"));
    MP_OK(mp_optimizer_step(run.optimizer, nullptr, nullptr));
    EXPECT_EQ(bytes_of(state_of(run.optimizer, 2, "param")), before);
    EXPECT_EQ(stats_of(run.optimizer).step, 1);
    MP_OK(mp_optimizer_set_step(run.optimizer, nullptr, 41));
    const Tensor late = make_tensor(run.context, MP_DTYPE_FP32, {3}, {1, 2, 3});
    int32_t index = -1;
    MP_OK(add_param(run.optimizer, 0, "late", late, nullptr, nullptr, &index));
    EXPECT_EQ(index, 4);
    MP_OK(mp_optimizer_set_lr(run.optimizer, 0, 0.5));
    MP_OK(mp_optimizer_step(run.optimizer, nullptr, nullptr));
    EXPECT_EQ(stats_of(run.optimizer).step, 42);
    EXPECT_NE(values_of(run.context, late)[2], 3.0F); // weight decay moves it
    int32_t count = 0;
    MP_OK(mp_optimizer_get_param_count(run.optimizer, &count));
    EXPECT_EQ(count, 5);
}

TEST(Optimizer, MeasuredMemoryEqualsThePlan) {
    for (const char* name : kRecipes) {
        Training run(name, 1, mp_optimizer_desc MP_OPTIMIZER_DESC_INIT);
        mp_memory_report planned{}, measured{};
        planned.struct_size = measured.struct_size = sizeof planned;
        MP_OK(mp_optimizer_get_memory(run.optimizer, &measured));
        EXPECT_EQ(measured.parameter_count, 1 + 7 + 4097 + 40000);
        MP_OK(mp_recipe_plan_memory(run.recipe, MP_RULE_ADAMW, measured.parameter_count, &planned));
        EXPECT_EQ(std::memcmp(&planned, &measured, sizeof planned), 0) << name;
    }
}
