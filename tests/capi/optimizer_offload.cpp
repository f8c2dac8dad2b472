// SPDX-License-Identifier: Apache-2.0
// An optimizer with its states on the host, and with its gradients there, too, against the ordinary one: the same bits, in every
// recipe, through skipped steps, clipping, groups that are off, and weights written from outside.
#include <cmath>
#include <limits>

#include "optimizers.hpp"
#include "support.hpp"

using namespace mp_test;

namespace {

const char* const kRecipes[] = {
    R"({"recipe": "fp32"})",
    R"({"recipe": "fp16_mixed"})",
    R"({"recipe": "bf16_mixed_dual"})",
    R"({"recipe": "bf16_pure_kahan"})",
    R"({"recipe": "bf16_pure_sr"})",
    R"({"recipe": "bf16_pure_remainder"})",
    R"({"recipe": "msamp_o2"})",
    R"({"recipe": "msamp_o3"})",
    R"({"recipe": "bf16_mixed_dual", "optimizer.exp_avg.dtype": "int8_block256",
        "optimizer.exp_avg_sq.dtype": "fp8_e4m3_block256"})",
};
const char* const kStates[] = {
    "param",      "param_scale_inv",      "grad",         "exp_avg", "exp_avg_scale_inv",
    "exp_avg_sq", "exp_avg_sq_scale_inv", "compensation", "master",  "master_scale_inv"};

constexpr uint32_t kAll = MP_OPTIMIZER_OFFLOAD | MP_OPTIMIZER_OFFLOAD_GRADS;
const uint32_t kPlaces[] = {MP_OPTIMIZER_OFFLOAD, kAll};

struct Training {
    Context context;
    Recipe recipe;
    Optimizer optimizer;
    std::vector<int64_t> sizes;

    Training(const char* json, uint32_t flags, std::vector<int64_t> counts,
             double max_grad_norm = 0.0)
        : context(make_context()), sizes(std::move(counts)) {
        recipe = recipe_of(context, json);
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.flags = flags | MP_OPTIMIZER_CHECK_FINITE;
        desc.seed = 11;
        desc.max_grad_norm = max_grad_norm;
        optimizer = make_optimizer(context, recipe, desc);
        for (int32_t group = 0; group < 2; ++group) {
            mp_param_group_desc group_desc = MP_PARAM_GROUP_DESC_INIT;
            group_desc.lr = 0.01;
            group_desc.weight_decay = group == 0 ? 0.1 : 0.0;
            int32_t index = 0;
            EXPECT_GE(mp_optimizer_add_group(optimizer, &group_desc, &index), 0);
        }
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            add(static_cast<int32_t>(i));
        }
    }

    // Of the recipe's weight form; the fourth kept in fp32.
    Tensor new_param(int32_t i) {
        const char* name = nullptr;
        EXPECT_TRUE(succeeded(mp_recipe_get_string(recipe, MP_RECIPE_WEIGHT_DTYPE, &name)));
        const std::string form = i == 3 ? "fp32" : name;
        const int64_t count = sizes[static_cast<std::size_t>(i)];
        if (form.find("_scaled") == std::string::npos) {
            return make_tensor(context,
                               form == "fp32"   ? MP_DTYPE_FP32
                               : form == "fp16" ? MP_DTYPE_FP16
                                                : MP_DTYPE_BF16,
                               {count});
        }
        mp_quant_desc quant = MP_QUANT_DESC_INIT;
        const int32_t dtype = form == "fp16_scaled" ? MP_DTYPE_FP16 : MP_DTYPE_FP8_E4M3;
        quant.scaling = MP_SCALING_TENSOR;
        quant.rule = MP_SCALE_RULE_MSAMP;
        return make_quantized(context, dtype, {count}, &quant);
    }
    void add(int32_t i) {
        const int64_t count = sizes[static_cast<std::size_t>(i)];
        const Tensor param = new_param(i);
        const Tensor init =
            make_tensor(context, MP_DTYPE_FP32, {count},
                        numbers(static_cast<std::size_t>(count), static_cast<uint64_t>(i) + 1));
        const std::string name = 'p' + std::to_string(i);
        EXPECT_TRUE(succeeded(add_param(optimizer, i % 2, name.c_str(), param, nullptr, init)));
    }
    Tensor state(int32_t i, const char* name) {
        mp_tensor* raw = nullptr;
        if (std::string(name) == "grad") {
            EXPECT_TRUE(succeeded(mp_optimizer_acquire_grad(optimizer, nullptr, i)));
        }
        return mp_optimizer_get_state(optimizer, i, name, &raw) == MP_STATUS_OK ? Tensor(raw)
                                                                                : Tensor();
    }
    void write_grads(uint64_t seed, float first = 1.0F) {
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            const auto index = static_cast<int32_t>(i);
            std::vector<float> values = numbers(static_cast<std::size_t>(sizes[i]), seed * 100 + i);
            values[0] *= first;
            const Tensor exact = make_tensor(context, MP_DTYPE_FP32, {sizes[i]}, values);
            const Tensor grad = state(index, "grad");
            const Tensor scale = state(index, "grad_scale_inv");
            mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
            EXPECT_TRUE(succeeded(mp_tensor_get_desc(grad, &desc)));
            EXPECT_TRUE(succeeded(
                static_cast<mp_tensor*>(scale) != nullptr
                    ? mp_tensor_quantize(exact, nullptr, grad, nullptr, nullptr, nullptr)
                : desc.dtype == MP_DTYPE_FP32 ? mp_tensor_copy(exact, nullptr, grad)
                                              : mp_tensor_cast(exact, nullptr, grad, nullptr)));
        }
    }
    void step(uint64_t seed, float first = 1.0F) {
        write_grads(seed, first);
        ASSERT_TRUE(succeeded(mp_optimizer_step(optimizer, nullptr, nullptr)));
    }
    mp_optimizer_stats stats() { return stats_of(optimizer); }
};

void expect_equal(Training& a, Training& b) {
    for (std::size_t i = 0; i < a.sizes.size(); ++i) {
        const auto index = static_cast<int32_t>(i);
        for (const char* name : kStates) {
            const Tensor left = a.state(index, name);
            const Tensor right = b.state(index, name);
            ASSERT_EQ(static_cast<mp_tensor*>(left) == nullptr,
                      static_cast<mp_tensor*>(right) == nullptr)
                << name;
            if (static_cast<mp_tensor*>(left) != nullptr) {
                EXPECT_EQ(bytes_of(left), bytes_of(right)) << name << " of parameter " << i;
            }
        }
    }
    const mp_optimizer_stats left = a.stats();
    const mp_optimizer_stats right = b.stats();
    EXPECT_EQ(std::memcmp(&left, &right, sizeof left), 0);
}

const std::vector<int64_t> kSizes = {1, 7, 4097, 300, 40000};

} // namespace

TEST(OptimizerOffload, TheSameBitsInEveryRecipe) {
    for (const char* recipe : kRecipes) {
        SCOPED_TRACE(recipe);
        Training ordinary(recipe, 0, kSizes, 3.0);
        Training offloaded(recipe, MP_OPTIMIZER_OFFLOAD, kSizes, 3.0);
        Training with_grads(recipe, kAll, kSizes, 3.0);
        for (uint64_t seed = 0; seed <= 4; ++seed) {
            for (Training* run : {&ordinary, &offloaded, &with_grads}) {
                if (seed > 0) {
                    run->step(seed, seed == 3 ? std::numeric_limits<float>::infinity() : 1.0F);
                }
            }
            expect_equal(ordinary, offloaded);
            expect_equal(ordinary, with_grads);
        }
        EXPECT_EQ(with_grads.stats().step, 3);
        EXPECT_EQ(with_grads.stats().skipped_steps, 1);
    }
}

// 24 and 21 MB of gradients, and a rest: three buckets, so that each kind of staging memory is used again.
TEST(OptimizerOffload, ManyBuckets) {
    const std::vector<int64_t> sizes = {1, 6000000, 40000, 5300000, 4500000, 1000};
    Training ordinary(kRecipes[0], MP_OPTIMIZER_ZERO_GRAD, sizes);
    for (uint64_t seed = 1; seed <= 2; ++seed) {
        ordinary.step(seed);
    }
    for (const uint32_t place : kPlaces) {
        Training offloaded(kRecipes[0], MP_OPTIMIZER_ZERO_GRAD | place, sizes);
        for (uint64_t seed = 1; seed <= 2; ++seed) {
            offloaded.step(seed);
        }
        expect_equal(ordinary, offloaded);
        EXPECT_EQ(values_of(offloaded.context, offloaded.state(1, "grad")),
                  std::vector<float>(6000000, 0.0F));
    }
}

TEST(OptimizerOffload, GroupsThatAreOffAndParametersThatComeLate) {
    Training ordinary(kRecipes[2], 0, kSizes);
    Training offloaded(kRecipes[2], MP_OPTIMIZER_OFFLOAD, kSizes);
    Training with_grads(kRecipes[2], kAll, kSizes);
    for (Training* run : {&ordinary, &offloaded, &with_grads}) {
        MP_OK(mp_optimizer_set_enabled(run->optimizer, 1, 0));
        run->step(1);
        MP_OK(mp_optimizer_set_enabled(run->optimizer, 1, 1));
        run->sizes.push_back(500);
        run->add(5);
        run->step(2);
        MP_OK(mp_optimizer_set_lr(run->optimizer, -1, 0.002));
        run->step(3);
    }
    expect_equal(ordinary, offloaded);
    expect_equal(ordinary, with_grads);
}

// The copy of the weights on the host follows what is written from outside, by the call.
TEST(OptimizerOffload, WeightsWrittenFromOutside) {
    for (const char* recipe : {kRecipes[2], kRecipes[3], kRecipes[5], kRecipes[7]}) {
        SCOPED_TRACE(recipe);
        Training ordinary(recipe, 0, kSizes);
        Training offloaded(recipe, MP_OPTIMIZER_OFFLOAD, kSizes);
        for (Training* run : {&ordinary, &offloaded}) {
            run->step(1);
            const Tensor values =
                make_tensor(run->context, MP_DTYPE_FP32, {4097}, numbers(4097, 77));
            const Tensor param = run->state(2, "param");
            MP_OK(static_cast<mp_tensor*>(run->state(2, "param_scale_inv")) != nullptr
                      ? mp_tensor_quantize(values, nullptr, param, nullptr, nullptr, nullptr)
                      : mp_tensor_cast(values, nullptr, param, nullptr));
            MP_OK(mp_optimizer_sync_master(run->optimizer, nullptr, 2));
            run->step(2);
        }
        expect_equal(ordinary, offloaded);
    }
}

TEST(OptimizerOffload, ValuesOfStates) {
    Training ordinary(kRecipes[3], 0, kSizes);
    Training offloaded(kRecipes[3], MP_OPTIMIZER_OFFLOAD, kSizes);
    for (Training* run : {&ordinary, &offloaded}) {
        const Tensor weight = make_tensor(run->context, MP_DTYPE_FP32, {4097}, numbers(4097, 5));
        MP_OK(mp_optimizer_write_state(run->optimizer, nullptr, 2, "fp32_param", weight));
        MP_OK(mp_optimizer_write_state(run->optimizer, nullptr, 2, "exp_avg", weight));
        run->step(1);
    }
    expect_equal(ordinary, offloaded);
    const Tensor left = make_tensor(ordinary.context, MP_DTYPE_FP32, {4097});
    const Tensor right = make_tensor(offloaded.context, MP_DTYPE_FP32, {4097});
    MP_OK(mp_optimizer_read_state(ordinary.optimizer, nullptr, 2, "fp32_param", left));
    MP_OK(mp_optimizer_read_state(offloaded.optimizer, nullptr, 2, "fp32_param", right));
    EXPECT_EQ(bytes_of(left), bytes_of(right));
}
