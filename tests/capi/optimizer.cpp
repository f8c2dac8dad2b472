// SPDX-License-Identifier: Apache-2.0
// The optimizer object: groups, states, skipped steps, clipping, masters, Kahan, and the same bits for every
// thread count. The arithmetic itself is tested over every backend in tests/backends.
#include <cmath>
#include <limits>

#include "support.hpp"

using namespace mp_test;

namespace {

mp_optimizer_stats stats_of(mp_optimizer* optimizer) {
    mp_optimizer_stats stats{};
    stats.struct_size = sizeof stats;
    EXPECT_TRUE(succeeded(mp_optimizer_get_stats(optimizer, nullptr, &stats)));
    return stats;
}

Tensor state_of(mp_optimizer* optimizer, int32_t index, const char* name) {
    mp_tensor* tensor = nullptr;
    EXPECT_TRUE(succeeded(mp_optimizer_get_state(optimizer, index, name, &tensor)));
    return Tensor(tensor);
}

Optimizer make_optimizer(mp_context* context, mp_recipe* recipe, const mp_optimizer_desc& desc) {
    mp_optimizer* optimizer = nullptr;
    EXPECT_TRUE(succeeded(mp_optimizer_create(context, recipe, &desc, &optimizer)));
    return Optimizer(optimizer);
}

int32_t add_group(mp_optimizer* optimizer, double lr = 1e-3, double weight_decay = 0.01,
                  double beta2 = 0.95) {
    mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
    group.lr = lr;
    group.beta2 = beta2;
    group.weight_decay = weight_decay;
    int32_t index = -1;
    EXPECT_TRUE(succeeded(mp_optimizer_add_group(optimizer, &group, &index)));
    return index;
}

mp_status add_param(mp_optimizer* optimizer, int32_t group, const char* name, mp_tensor* param,
                    mp_tensor* grad, mp_tensor* init, int32_t* index = nullptr) {
    mp_param_desc desc = MP_PARAM_DESC_INIT;
    desc.name = name;
    desc.param = param;
    desc.grad = grad;
    desc.init_fp32 = init;
    return mp_optimizer_add_param(optimizer, group, &desc, index);
}

int32_t weight_dtype(mp_recipe* recipe) {
    const char* name = nullptr;
    EXPECT_TRUE(succeeded(mp_recipe_get_string(recipe, MP_RECIPE_WEIGHT_DTYPE, &name)));
    return std::string(name) == "fp32"   ? MP_DTYPE_FP32
           : std::string(name) == "fp16" ? MP_DTYPE_FP16
                                         : MP_DTYPE_BF16;
}

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
            std::vector<float> values =
                numbers(static_cast<std::size_t>(kSizes[i]), seed * 10 + static_cast<uint64_t>(i));
            for (float& value : values) {
                value *= scale;
            }
            const Tensor exact = make_tensor(context, MP_DTYPE_FP32, {kSizes[i]}, values);
            const Tensor grad = state_of(optimizer, i, "grad");
            mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
            EXPECT_TRUE(succeeded(mp_tensor_get_desc(grad, &desc)));
            EXPECT_TRUE(succeeded(desc.dtype == MP_DTYPE_FP32
                                      ? mp_tensor_copy(exact, nullptr, grad)
                                      : mp_tensor_cast(exact, nullptr, grad, nullptr)));
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
            mp_tensor_desc grad_desc = MP_TENSOR_DESC_INIT;
            MP_OK(mp_tensor_get_desc(grad, &grad_desc));
            MP_OK(grad_desc.dtype == MP_DTYPE_FP32 ? mp_tensor_copy(exact, nullptr, grad)
                                                   : mp_tensor_cast(exact, nullptr, grad, nullptr));
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
    mp_scaler* raw = nullptr;
    MP_OK(mp_scaler_create(scaled.context, &scaler_desc, &raw));
    const Scaler scaler(raw);
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

TEST(Optimizer, MasterAndCompensationReceiveWhatRoundingLost) {
    const std::vector<float> init = numbers(1000, 9);
    for (const char* name : {"bf16_mixed_dual", "bf16_pure_kahan", "fp16_mixed"}) {
        const Context context = make_context();
        const Recipe recipe = make_recipe(context, name);
        const Optimizer optimizer = make_optimizer(context, recipe, MP_OPTIMIZER_DESC_INIT);
        add_group(optimizer);
        const Tensor exact = make_tensor(context, MP_DTYPE_FP32, {1000}, init);
        const Tensor param = make_tensor(context, weight_dtype(recipe), {1000});
        MP_OK(add_param(optimizer, 0, "p", param, nullptr, exact));
        EXPECT_EQ(bytes_of(param),
                  bytes_of(make_tensor(context, weight_dtype(recipe), {1000}, init)));
        const auto p = values_of(context, param);
        if (std::string(name) == "bf16_pure_kahan") {
            const auto c = values_of(context, state_of(optimizer, 0, "compensation"));
            for (std::size_t i = 0; i < 1000; ++i) { // 8 + 8 significant bits
                ASSERT_NEAR(p[i] + c[i], init[i], std::fabs(init[i]) * 0x1p-16) << i;
            }
        } else {
            EXPECT_EQ(values_of(context, state_of(optimizer, 0, "master")), init);
        }
    }
}

// Ten thousand tiny steps: what each recipe really applies of an update that bf16 alone cannot hold.
TEST(Optimizer, SmallLearningRateNeedsKahanOrStochasticRoundingOrAMaster) {
    const auto mean_after = [](const char* name, const char* state) {
        constexpr std::size_t kCount = 512;
        const Context context = make_context();
        const Recipe recipe = make_recipe(context, name);
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.seed = 5;
        const Optimizer optimizer = make_optimizer(context, recipe, desc);
        add_group(optimizer, 1e-5, 0.0);
        const Tensor param =
            make_tensor(context, weight_dtype(recipe), {kCount}, std::vector<float>(kCount, 1.0F));
        EXPECT_TRUE(succeeded(add_param(optimizer, 0, "gain", param, nullptr, nullptr)));
        const Tensor ones =
            make_tensor(context, MP_DTYPE_FP32, {kCount}, std::vector<float>(kCount, 1.0F));
        const Tensor grad = state_of(optimizer, 0, "grad");
        mp_tensor_desc grad_desc = MP_TENSOR_DESC_INIT;
        EXPECT_TRUE(succeeded(mp_tensor_get_desc(grad, &grad_desc)));
        EXPECT_TRUE(succeeded(grad_desc.dtype == MP_DTYPE_FP32
                                  ? mp_tensor_copy(ones, nullptr, grad)
                                  : mp_tensor_cast(ones, nullptr, grad, nullptr)));
        for (int step = 0; step < 4000; ++step) {
            EXPECT_TRUE(succeeded(mp_optimizer_step(optimizer, nullptr, nullptr)));
        }
        double mean = 0;
        for (const float value : values_of(context, state_of(optimizer, 0, state))) {
            mean += static_cast<double>(value) / kCount;
        }
        return mean;
    };
    const double exact = 1.0 - 4000 * 1e-5; // |m / sqrt(v)| is 1 for a constant gradient
    EXPECT_NEAR(mean_after("fp32", "param"), exact, 1e-4);
    EXPECT_EQ(mean_after("bf16_pure", "param"), 1.0); // not one step arrives
    EXPECT_NEAR(mean_after("bf16_mixed_dual", "master"), exact, 1e-4);
    EXPECT_NEAR(mean_after("bf16_mixed_dual", "param"), exact, 0x1p-9);
    // bf16 moments make each step a few percent off; what counts is that the steps arrive.
    EXPECT_NEAR(mean_after("bf16_pure_sr", "param"), exact, 0.1 * (1.0 - exact));
}

TEST(Optimizer, KahanAppliesWhatPlainBf16Loses) {
    for (const char* format :
         {"bf16", "fp8_e4m3_block256", "fp8_e4m3_block128", "int8_block256", "int8_companded32"}) {
        SCOPED_TRACE(format);
        const Context context = make_context();
        const std::string json = R"({"recipe": "bf16_pure_kahan", "optimizer.block_min_elements": 0,
                                     "optimizer.compensation.dtype": ")" +
                                 std::string(format) + "\"}";
        mp_recipe* raw = nullptr;
        MP_OK(mp_recipe_create_from_json(context, json.data(), json.size(), &raw));
        const Recipe recipe(raw);
        const Optimizer optimizer = make_optimizer(context, recipe, MP_OPTIMIZER_DESC_INIT);
        add_group(optimizer, 1e-4, 0.0);
        const Tensor param =
            make_tensor(context, MP_DTYPE_BF16, {64}, std::vector<float>(64, 1.0F));
        const Tensor grad = make_tensor(context, MP_DTYPE_BF16, {64}, std::vector<float>(64, 1.0F));
        MP_OK(add_param(optimizer, 0, "gain", param, grad, nullptr));
        for (int step = 0; step < 1000; ++step) {
            MP_OK(mp_optimizer_step(optimizer, nullptr, nullptr));
        }
        const double p = values_of(context, param)[0];
        const Tensor lost = make_tensor(context, MP_DTYPE_FP32, {64});
        MP_OK(mp_optimizer_read_state(optimizer, nullptr, 0, "compensation", lost));
        const double c = values_of(context, lost)[0];
        EXPECT_NEAR(p + c, 0.9, 0.01); // plain bf16 stays at 1
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

TEST(Optimizer, NearestBf16SecondMomentIsWarnedOf) {
    const Context context = make_context();
    const Recipe recipe = make_recipe(context, "bf16_pure");
    const Optimizer optimizer = make_optimizer(context, recipe, MP_OPTIMIZER_DESC_INIT);
    mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
    int32_t index = -1;
    EXPECT_EQ(mp_optimizer_add_group(optimizer, &group, &index), MP_STATUS_WARNING);
    EXPECT_NE(std::string(mp_last_error_message()).find("never decrease"), std::string::npos);
    EXPECT_EQ(index, 0); // done all the same
    group.beta2 = 0.996;
    MP_OK(mp_optimizer_add_group(optimizer, &group, &index));
}

TEST(Optimizer, WrongCalls) {
    const Context context = make_context();
    const Recipe recipe = make_recipe(context, "bf16_pure");
    const Optimizer optimizer = make_optimizer(context, recipe, MP_OPTIMIZER_DESC_INIT);
    const Tensor param = make_tensor(context, MP_DTYPE_BF16, {4, 4});
    MP_FAILS(add_param(optimizer, 0, "p", param, nullptr, nullptr), MP_STATUS_INVALID_ARGUMENT,
             "group", "0");
    add_group(optimizer);
    MP_OK(add_param(optimizer, 0, "p", param, nullptr, nullptr));
    MP_FAILS(add_param(optimizer, 0, "p", param, nullptr, nullptr), MP_STATUS_INVALID_ARGUMENT,
             "already", "'p'");
    MP_FAILS(add_param(optimizer, 0, "", param, nullptr, nullptr), MP_STATUS_INVALID_ARGUMENT,
             "name");
    MP_FAILS(add_param(optimizer, 0, nullptr, param, nullptr, nullptr), MP_STATUS_NULL_ARGUMENT,
             "name");
    MP_FAILS(add_param(optimizer, 0, "q", nullptr, nullptr, nullptr), MP_STATUS_NULL_ARGUMENT,
             "param");
    const Tensor wrong = make_tensor(context, MP_DTYPE_FP16, {4, 4});
    MP_FAILS(add_param(optimizer, 0, "q", wrong, nullptr, nullptr), MP_STATUS_INVALID_DTYPE, "fp16",
             "bf16");
    const Tensor shape = make_tensor(context, MP_DTYPE_BF16, {16});
    MP_FAILS(add_param(optimizer, 0, "q", param, shape, nullptr), MP_STATUS_INVALID_SHAPE, "[4, 4]",
             "[16]");
    MP_FAILS(add_param(optimizer, 0, "q", param, nullptr, param), MP_STATUS_INVALID_DTYPE,
             "init_fp32");
    MP_FAILS(add_param(optimizer, 0, "q", param, param, nullptr), MP_STATUS_INVALID_ARGUMENT,
             "overlaps");
    const Tensor bytes = make_tensor(context, MP_DTYPE_INT8, {4, 4});
    const Tensor other = make_tensor(context, MP_DTYPE_BF16, {4, 4});
    MP_FAILS(add_param(optimizer, 0, "q", other, bytes, nullptr), MP_STATUS_INVALID_DTYPE, "int8");
    mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
    int32_t index = 0;
    group.beta1 = 1.0;
    MP_FAILS(mp_optimizer_add_group(optimizer, &group, &index), MP_STATUS_INVALID_ARGUMENT, "beta1",
             "1");
    group = MP_PARAM_GROUP_DESC_INIT;
    group.lr = NAN;
    MP_FAILS(mp_optimizer_add_group(optimizer, &group, &index), MP_STATUS_INVALID_ARGUMENT, "lr",
             "nan");
    MP_FAILS(mp_optimizer_set_lr(optimizer, 5, 0.1), MP_STATUS_INVALID_ARGUMENT, "group", "5");
    MP_FAILS(mp_optimizer_set_lr(optimizer, 0, -0.1), MP_STATUS_INVALID_ARGUMENT, "lr");
    mp_tensor* out = nullptr;
    MP_FAILS(mp_optimizer_get_state(optimizer, 0, "master", &out), MP_STATUS_UNKNOWN_NAME, "master",
             "exp_avg_sq");
    MP_FAILS(mp_optimizer_get_state(optimizer, 3, "param", &out), MP_STATUS_INVALID_ARGUMENT, "3");
    MP_FAILS(mp_optimizer_set_step(optimizer, nullptr, -1), MP_STATUS_INVALID_ARGUMENT, "-1");
    mp_optimizer* raw = nullptr;
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    desc.max_grad_norm = -2;
    MP_FAILS(mp_optimizer_create(context, recipe, &desc, &raw), MP_STATUS_INVALID_ARGUMENT,
             "max_grad_norm");
    desc = MP_OPTIMIZER_DESC_INIT;
    desc.flags = 1u << 31;
    MP_FAILS(mp_optimizer_create(context, recipe, &desc, &raw), MP_STATUS_INVALID_ARGUMENT,
             "flags");
    int32_t count = 0;
    MP_OK(mp_optimizer_get_param_count(optimizer, &count));
    EXPECT_EQ(count, 1); // nothing half-added
}

// A step works on all parameters at once: none may be written twice, nor be another's gradient.
TEST(Optimizer, ParametersThatShareMemoryAreRefused) {
    const Context context = make_context();
    const Recipe recipe = make_recipe(context, "fp32");
    const Optimizer optimizer =
        make_optimizer(context, recipe, mp_optimizer_desc MP_OPTIMIZER_DESC_INIT);
    const int32_t group = add_group(optimizer);
    std::vector<float> memory(300);
    const auto piece = [&](std::size_t first, int64_t count) {
        const mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP32, {count});
        mp_tensor* tensor = nullptr;
        EXPECT_TRUE(succeeded(
            mp_tensor_wrap(context, &desc, memory.data() + first, nullptr, nullptr, &tensor)));
        return Tensor(tensor);
    };
    const Tensor param = piece(0, 100);
    const Tensor grad = piece(100, 100);
    MP_OK(add_param(optimizer, group, "a", param, grad, nullptr));
    MP_FAILS(add_param(optimizer, group, "b", param, nullptr, nullptr), MP_STATUS_INVALID_ARGUMENT,
             "weight of 'b'", "weight of 'a'");
    MP_FAILS(add_param(optimizer, group, "b", piece(99, 50), nullptr, nullptr),
             MP_STATUS_INVALID_ARGUMENT, "'a'");
    MP_FAILS(add_param(optimizer, group, "b", piece(199, 50), nullptr, nullptr),
             MP_STATUS_INVALID_ARGUMENT, "weight of 'b'", "gradient of 'a'");
    MP_FAILS(add_param(optimizer, group, "b", piece(200, 100), grad, nullptr),
             MP_STATUS_INVALID_ARGUMENT, "gradient of 'b'");
    int32_t count = 0;
    MP_OK(mp_optimizer_get_param_count(optimizer, &count));
    EXPECT_EQ(count, 1);
    MP_OK(add_param(optimizer, group, "b", piece(200, 100), nullptr, nullptr));
}
