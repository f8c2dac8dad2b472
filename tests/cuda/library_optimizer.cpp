// SPDX-License-Identifier: Apache-2.0
// The optimizer on a CUDA device through its C ABI, beside the same calls on the host.
#include <cmath>

#include "library.hpp"

using namespace mp_test;

namespace {

constexpr int64_t kSizes[] = {1, 4097, 40000};
constexpr int32_t kParams = 3;

Tensor state_of(mp_optimizer* optimizer, int32_t index, const char* name) {
    mp_tensor* tensor = nullptr;
    const mp_status status = mp_optimizer_get_state(optimizer, index, name, &tensor);
    EXPECT_TRUE(status == MP_STATUS_OK || status == MP_STATUS_UNKNOWN_NAME); // not all have all
    return Tensor(tensor);
}

void add_params(mp_context* context, mp_recipe* recipe, mp_optimizer* optimizer) {
    mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
    group.weight_decay = 0.1;
    group.beta2 = 0.95;
    int32_t index = -1;
    MP_OK(mp_optimizer_add_group(optimizer, &group, &index));
    const int32_t dtype = dtype_of(recipe, MP_RECIPE_WEIGHT_DTYPE);
    for (int32_t i = 0; i < kParams; ++i) {
        const auto seed = static_cast<uint64_t>(i);
        const Tensor init = make_tensor(context, MP_DTYPE_FP32, {kSizes[i]},
                                        numbers(static_cast<std::size_t>(kSizes[i]), seed));
        const Tensor param = make_tensor(context, dtype, {kSizes[i]});
        const std::string name = std::to_string(i);
        mp_param_desc desc = MP_PARAM_DESC_INIT;
        desc.name = name.c_str();
        desc.param = param;
        desc.init_fp32 = init;
        MP_OK(mp_optimizer_add_param(optimizer, index, &desc, nullptr));
    }
}

// The same gradients everywhere; those of step 3 overflow.
void write_grads(mp_context* context, mp_optimizer* optimizer, int32_t step) {
    for (int32_t i = 0; i < kParams; ++i) {
        std::vector<float> values =
            numbers(static_cast<std::size_t>(kSizes[i]), static_cast<uint64_t>(100 * step + i));
        if (step == 3) {
            values.back() = INFINITY;
        }
        MP_OK(mp_optimizer_acquire_grad(optimizer, nullptr, i));
        const Tensor grad = state_of(optimizer, i, "grad");
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        MP_OK(mp_tensor_get_desc(grad, &desc));
        const Tensor rounded = make_tensor(context, desc.dtype, {kSizes[i]}, values);
        MP_OK(mp_tensor_copy(rounded, nullptr, grad));
        if (i % 2 == 0) { // the step takes the others
            MP_OK(mp_optimizer_grad_ready(optimizer, nullptr, i));
        }
    }
}

// The weight with all its bits, and the moments, as numbers; after new ones were written. Under offload they are on the
// host.
std::vector<unsigned char> values_of_states(mp_context* context, mp_optimizer* optimizer,
                                            int32_t index, bool is_offloaded) {
    mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP32, {kSizes[index]});
    desc.device_kind = is_offloaded ? MP_DEVICE_HOST : 0;
    mp_tensor* raw = nullptr;
    EXPECT_TRUE(succeeded(mp_tensor_create(context, &desc, &raw)));
    const Tensor values(raw);
    std::vector<float> written = numbers(static_cast<std::size_t>(kSizes[index]), 9);
    for (float& value : written) {
        value *= value;
    }
    EXPECT_TRUE(succeeded(
        mp_tensor_write(values, nullptr, written.data(), written.size() * sizeof(float))));
    std::vector<unsigned char> bits;
    for (const char* name : {"exp_avg", "exp_avg_sq", "fp32_param"}) {
        EXPECT_TRUE(succeeded(mp_optimizer_write_state(optimizer, nullptr, index, name, values)));
    }
    for (const char* name : {"exp_avg", "exp_avg_sq", "fp32_param"}) {
        EXPECT_TRUE(succeeded(mp_optimizer_read_state(optimizer, nullptr, index, name, values)));
        const std::vector<unsigned char> bytes = bytes_of(values);
        bits.insert(bits.end(), bytes.begin(), bytes.end());
    }
    const std::vector<unsigned char> param = bytes_of(state_of(optimizer, index, "param"));
    bits.insert(bits.end(), param.begin(), param.end());
    return bits;
}

// Everything that is left of a few steps: states, loss scale, statistics.
std::vector<unsigned char> train(mp_context* context, const char* recipe_name, uint32_t flags = 0) {
    std::vector<unsigned char> bits;
    const auto keep = [&bits](const void* data, std::size_t bytes) {
        const auto* begin = static_cast<const unsigned char*>(data);
        bits.insert(bits.end(), begin, begin + bytes);
    };
    const Recipe recipe = make_recipe(context, recipe_name);
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    desc.flags = MP_OPTIMIZER_CHECK_FINITE | MP_OPTIMIZER_ZERO_GRAD | flags;
    desc.seed = 11;
    desc.max_grad_norm = 1.0;
    mp_optimizer* raw_optimizer = nullptr;
    EXPECT_TRUE(succeeded(mp_optimizer_create(context, recipe, &desc, &raw_optimizer)));
    const Optimizer optimizer(raw_optimizer);
    mp_scaler* raw_scaler = nullptr;
    EXPECT_TRUE(succeeded(mp_scaler_create_from_recipe(context, recipe, &raw_scaler)));
    const Scaler scaler(raw_scaler);
    add_params(context, recipe, optimizer);
    for (int32_t step = 1; step <= 5; ++step) {
        write_grads(context, optimizer, step);
        EXPECT_TRUE(succeeded(mp_optimizer_set_lr(optimizer, -1, 1e-2 / step)));
        EXPECT_TRUE(succeeded(mp_optimizer_step(optimizer, nullptr, scaler)));
        EXPECT_TRUE(succeeded(mp_scaler_update(scaler, nullptr)));
    }
    mp_optimizer_stats stats{};
    stats.struct_size = sizeof stats;
    EXPECT_TRUE(succeeded(mp_optimizer_get_stats(optimizer, nullptr, &stats)));
    EXPECT_EQ(stats.step, 4);
    EXPECT_EQ(stats.skipped_steps, 1);
    double scale = 0.0;
    EXPECT_TRUE(succeeded(mp_scaler_get_scale(scaler, nullptr, &scale)));
    keep(&stats, sizeof stats);
    keep(&scale, sizeof scale);
    for (int32_t i = 0; i < kParams; ++i) {
        EXPECT_TRUE(succeeded(mp_optimizer_acquire_grad(optimizer, nullptr, i)));
        for (const char* name :
             {"param", "grad", "exp_avg", "exp_avg_sq", "compensation", "master"}) {
            const Tensor state = state_of(optimizer, i, name);
            if (state != nullptr) {
                const std::vector<unsigned char> bytes = bytes_of(state);
                keep(bytes.data(), bytes.size());
            }
        }
        const std::vector<unsigned char> numbers =
            values_of_states(context, optimizer, i, (flags & MP_OPTIMIZER_OFFLOAD) != 0);
        keep(numbers.data(), numbers.size());
    }
    return bits;
}

TEST_F(OnCuda, TheOptimizerHasTheHostsBits) {
    const Context host = open_context(MP_DEVICE_HOST);
    const Context cuda = open_context(MP_DEVICE_CUDA);
    for (const char* recipe : kRecipes) {
        const std::vector<unsigned char> expected = train(host, recipe);
        EXPECT_GT(expected.size(), 100000U);
        EXPECT_EQ(expected, train(cuda, recipe)) << recipe;
        EXPECT_EQ(expected, train(cuda, recipe, MP_OPTIMIZER_OFFLOAD)) << recipe << ", offloaded";
        EXPECT_EQ(expected, train(cuda, recipe, MP_OPTIMIZER_OFFLOAD | MP_OPTIMIZER_OFFLOAD_GRADS))
            << recipe << ", and gradients";
    }
}

} // namespace
