// SPDX-License-Identifier: Apache-2.0
// The library on a CUDA device through its C ABI, beside the same calls on the host. Skipped where
// there is no device; run on the simulated one too, whose memory the host cannot touch.
#include <cmath>

#include "../capi/support.hpp"

using namespace mp_test;

namespace {

const char* const kRecipes[] = {"fp32",      "fp16_mixed",   "bf16_mixed",     "bf16_mixed_dual",
                                "bf16_pure", "bf16_pure_sr", "bf16_pure_kahan"};

Context open_context(int32_t device_kind) {
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.device_kind = device_kind;
    desc.num_threads = 2;
    mp_context* context = nullptr;
    EXPECT_TRUE(succeeded(mp_context_create(&desc, &context)));
    return Context(context);
}

class OnCuda : public ::testing::Test {
  protected:
    void SetUp() override {
        const mp_status status = mp_device_available(MP_DEVICE_CUDA, 0);
        if (status == MP_STATUS_DEVICE_UNAVAILABLE) {
            GTEST_SKIP() << "skipped: no CUDA device (" << mp_last_error_message() << ")";
        }
        ASSERT_TRUE(succeeded(status));
    }
};

// ---- streams -----------------------------------------------------------------------------------

// Two queues, of which the second reads what the first writes: right only where it waits.
TEST_F(OnCuda, AQueueWaitsForAnotherByAnEvent) {
    const Context context = open_context(MP_DEVICE_CUDA);
    mp_queue* raw = nullptr;
    MP_OK(mp_queue_create(context, &raw));
    const Queue first(raw);
    MP_OK(mp_queue_create(context, &raw));
    const Queue second(raw);
    mp_event* made = nullptr;
    MP_OK(mp_event_create(context, &made));
    const Event event(made);
    MP_OK(mp_event_test(event)); // never recorded
    const std::vector<float> values(4096, 2.5F);
    const Tensor source = make_tensor(context, MP_DTYPE_FP32, {4096}, values);
    const Tensor middle = make_tensor(context, MP_DTYPE_BF16, {4096});
    const Tensor result = make_tensor(context, MP_DTYPE_FP32, {4096});
    MP_OK(mp_context_sync(context));
    MP_OK(mp_tensor_cast(source, first, middle, nullptr));
    MP_OK(mp_event_record(event, first));
    MP_OK(mp_queue_wait_event(second, event));
    MP_OK(mp_tensor_cast(middle, second, result, nullptr));
    MP_OK(mp_queue_sync(second)); // and by that the first
    EXPECT_EQ(values_of(context, result), values);
    MP_OK(mp_event_sync(event));
    MP_OK(mp_event_test(event));
    MP_OK(mp_queue_sync(first));
}

TEST_F(OnCuda, NativeStreamsAreGivenAndTakenByAddress) {
    const Context context = open_context(MP_DEVICE_CUDA);
    mp_queue* raw = nullptr;
    MP_OK(mp_queue_create(context, &raw));
    const Queue own(raw);
    void* stream = nullptr;
    MP_OK(mp_queue_get_native(own, &stream, sizeof stream));
    ASSERT_NE(stream, nullptr);
    MP_FAILS(mp_queue_get_native(own, &stream, 4), MP_STATUS_INVALID_ARGUMENT, "size is 4");
    MP_FAILS(mp_queue_get_native(own, nullptr, sizeof stream), MP_STATUS_NULL_ARGUMENT, "native");
    MP_OK(mp_queue_wrap_native(context, &stream, &raw));
    const Queue wrapped(raw);
    void* same = nullptr;
    MP_OK(mp_queue_get_native(wrapped, &same, sizeof same));
    EXPECT_EQ(same, stream);
    const Tensor tensor = make_tensor(context, MP_DTYPE_FP32, {3}, {1, 2, 3});
    MP_OK(mp_tensor_zero(tensor, wrapped));
    MP_OK(mp_queue_sync(own)); // one stream
    const void* const none = nullptr;
    MP_FAILS(mp_queue_wrap_native(context, &none, &raw), MP_STATUS_INVALID_ARGUMENT,
             "default stream");
    const void* const per_thread = reinterpret_cast<void*>(2); // cudaStreamPerThread
    MP_FAILS(mp_queue_wrap_native(context, &per_thread, &raw), MP_STATUS_INVALID_ARGUMENT,
             "cudaStreamPerThread is another stream in each thread");
    MP_FAILS(mp_queue_wrap_native(context, nullptr, &raw), MP_STATUS_NULL_ARGUMENT, "native");
    EXPECT_EQ(raw, nullptr);
}

int32_t dtype_of(mp_recipe* recipe, const char* key) {
    const char* name = nullptr;
    EXPECT_TRUE(succeeded(mp_recipe_get_string(recipe, key, &name)));
    const std::string text = name;
    return text == "fp32" ? MP_DTYPE_FP32 : text == "fp16" ? MP_DTYPE_FP16 : MP_DTYPE_BF16;
}

// ---- the optimizer -----------------------------------------------------------------------------

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
        const Tensor grad = state_of(optimizer, i, "grad");
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        MP_OK(mp_tensor_get_desc(grad, &desc));
        const Tensor rounded = make_tensor(context, desc.dtype, {kSizes[i]}, values);
        MP_OK(mp_tensor_copy(rounded, nullptr, grad));
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
    }
}

// ---- a layer -----------------------------------------------------------------------------------

constexpr int64_t kRows = 37;
constexpr int64_t kIn = 24;
constexpr int64_t kOut = 40;

struct Pass {
    std::vector<float> y, dx, dw, dbias;
};

Pass run_layer(mp_context* context, const char* recipe_name) {
    const Recipe recipe = make_recipe(context, recipe_name);
    const int32_t dtype = dtype_of(recipe, MP_RECIPE_WEIGHT_DTYPE);
    const Tensor weight = make_tensor(context, dtype, {kOut, kIn}, numbers(kOut * kIn, 2));
    const Tensor bias = make_tensor(context, dtype, {kOut}, numbers(kOut, 3));
    const Tensor x = make_tensor(context, MP_DTYPE_FP32, {kRows, kIn}, numbers(kRows * kIn, 1));
    const Tensor dy = make_tensor(context, MP_DTYPE_FP32, {kRows, kOut}, numbers(kRows * kOut, 4));
    const Tensor y = make_tensor(context, MP_DTYPE_FP32, {kRows, kOut});
    const Tensor dx = make_tensor(context, MP_DTYPE_FP32, {kRows, kIn});
    const Tensor dw = make_tensor(context, MP_DTYPE_FP32, {kOut, kIn});
    const Tensor dbias = make_tensor(context, MP_DTYPE_FP32, {kOut});
    mp_linear_desc desc = MP_LINEAR_DESC_INIT;
    desc.in_features = kIn;
    desc.out_features = kOut;
    mp_linear* raw = nullptr;
    EXPECT_TRUE(succeeded(mp_linear_create(context, recipe, &desc, weight, bias, &raw)));
    const Linear linear(raw);
    EXPECT_TRUE(succeeded(mp_linear_forward(linear, nullptr, x, y)));
    for (int32_t i = 0; i < 2; ++i) { // the second time it accumulates
        const uint32_t flags = i == 0 ? 0 : MP_BACKWARD_ACCUMULATE;
        EXPECT_TRUE(succeeded(mp_linear_backward(linear, nullptr, dy, dx, dw, dbias, flags)));
    }
    return {values_of(context, y), values_of(context, dx), values_of(context, dw),
            values_of(context, dbias)};
}

// Sums of at most `terms` products below 1, rounded in any order on either side.
void expect_near(const std::vector<float>& expected, const std::vector<float>& got, int64_t terms) {
    ASSERT_EQ(expected.size(), got.size());
    const double bound = 4.0 * static_cast<double>(terms * terms) * 0x1p-24;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(static_cast<double>(expected[i]), static_cast<double>(got[i]), bound) << i;
    }
}

TEST_F(OnCuda, ALayerAgreesWithTheHost) {
    const Context host = open_context(MP_DEVICE_HOST);
    const Context cuda = open_context(MP_DEVICE_CUDA);
    for (const char* recipe : kRecipes) {
        SCOPED_TRACE(recipe);
        const Pass expected = run_layer(host, recipe);
        const Pass got = run_layer(cuda, recipe);
        expect_near(expected.y, got.y, kIn + 1);
        expect_near(expected.dx, got.dx, kOut);
        expect_near(expected.dw, got.dw, 2 * kRows);
        EXPECT_EQ(expected.dbias, got.dbias); // their order is written down
    }
}

// Two forwards wait; the second is dropped and computed again.
TEST_F(OnCuda, WhatForwardsKeepHasTheBitsOfTheSimpleCalls) {
    const Context cuda = open_context(MP_DEVICE_CUDA);
    constexpr int64_t kSize = 32;
    const std::vector<int64_t> shape = {kSize, kSize};
    for (const char* name : {"fp32", "bf16_mixed", "fp8_delayed", "fp8_current"}) {
        SCOPED_TRACE(name);
        const Recipe recipe = make_recipe(cuda, name);
        const Tensor w = make_tensor(cuda, MP_DTYPE_FP32, shape, numbers(kSize * kSize, 1));
        const Tensor x[2] = {make_tensor(cuda, MP_DTYPE_FP32, shape, numbers(kSize * kSize, 2)),
                             make_tensor(cuda, MP_DTYPE_FP32, shape, numbers(kSize * kSize, 3))};
        const Tensor dy = make_tensor(cuda, MP_DTYPE_FP32, shape, numbers(kSize * kSize, 4));
        const Tensor y = make_tensor(cuda, MP_DTYPE_FP32, shape);
        mp_linear_desc desc = MP_LINEAR_DESC_INIT;
        desc.in_features = kSize;
        desc.out_features = kSize;
        std::vector<std::vector<unsigned char>> results[2];
        for (const bool waits : {false, true}) {
            mp_linear* raw = nullptr;
            MP_OK(mp_linear_create(cuda, recipe, &desc, w, nullptr, &raw));
            const Linear linear(raw);
            const Tensor dx = make_tensor(cuda, MP_DTYPE_FP32, shape);
            const Tensor dw = make_tensor(cuda, MP_DTYPE_FP32, shape);
            Saved saved[2];
            for (Saved& place : saved) {
                mp_saved* made = nullptr;
                MP_OK(mp_saved_create(linear, &made));
                place = Saved(made);
            }
            if (waits) {
                MP_OK(mp_linear_forward_saved(linear, nullptr, x[0], y, saved[0], 0));
                MP_OK(mp_linear_forward_saved(linear, nullptr, x[1], y, saved[1], MP_FORWARD_DROP));
            }
            for (int i = 0; i < 2; ++i) {
                const uint32_t flags = i == 0 ? 0 : MP_BACKWARD_ACCUMULATE;
                if (!waits) {
                    MP_OK(mp_linear_forward(linear, nullptr, x[i], y));
                    MP_OK(mp_linear_backward(linear, nullptr, dy, dx, dw, nullptr, flags));
                } else {
                    if (i == 1) {
                        MP_OK(mp_linear_forward_saved(linear, nullptr, x[1], nullptr, saved[1],
                                                      MP_FORWARD_RECOMPUTE));
                    }
                    MP_OK(mp_linear_backward_saved(linear, nullptr, saved[i], dy, dx, dw, nullptr,
                                                   flags));
                }
            }
            results[waits ? 1 : 0] = {bytes_of(dx), bytes_of(dw)};
        }
        EXPECT_EQ(results[0], results[1]);
    }
}

// ---- a step on pointers ------------------------------------------------------------------------

// With its numbers in device memory.
TEST_F(OnCuda, APreparedStepHasTheHostsBits) {
    constexpr std::size_t kCount = 5000;
    std::vector<std::vector<unsigned char>> results;
    for (const int32_t kind : {MP_DEVICE_HOST, MP_DEVICE_CUDA}) {
        const Context context = open_context(kind);
        const auto device = [&](uint64_t seed) {
            return make_tensor(context, MP_DTYPE_FP32, {static_cast<int64_t>(kCount)},
                               seed == 0 ? std::vector<float>(kCount) : numbers(kCount, seed));
        };
        const auto address = [](mp_tensor* tensor) {
            void* data = nullptr;
            EXPECT_TRUE(succeeded(mp_tensor_get_data(tensor, &data)));
            return data;
        };
        const Tensor p = device(1), g = device(2), m = device(0), v = device(0);
        const Tensor amax = make_tensor(context, MP_DTYPE_FP32, {1});
        // Five doubles and a count, in words that a tensor has.
        const Tensor words = make_tensor(context, MP_DTYPE_FP32, {12});
        struct {
            double hyper[5] = {3e-3, 0.8, 0.99, 1e-7, 0.25};
            int64_t taken = 0;
        } values;
        static_assert(sizeof values == 12 * sizeof(float));
        MP_OK(mp_tensor_write(words, nullptr, &values, sizeof values));
        mp_step_slot slot = MP_STEP_SLOT_INIT;
        slot.count = static_cast<int64_t>(kCount);
        slot.param.data = address(p);
        slot.grad.data = address(g);
        slot.states[0].data = address(m);
        slot.states[1].data = address(v);
        slot.param.dtype = slot.grad.dtype = slot.states[0].dtype = slot.states[1].dtype =
            MP_DTYPE_FP32;
        slot.param.amax = static_cast<float*>(address(amax));
        mp_step_args args = MP_STEP_ARGS_INIT;
        args.hyper_pointer = static_cast<const double*>(address(words));
        args.step_pointer = static_cast<int64_t*>(address(words)) + 5;
        mp_step_plan* made = nullptr;
        MP_OK(mp_step_plan_create(context, &args, &slot, 1, &made));
        const StepPlan plan(made);
        for (int i = 0; i < 3; ++i) {
            MP_OK(mp_step_plan_run(plan, nullptr, nullptr));
        }
        mp_optimizer_stats stats = MP_OPTIMIZER_STATS_INIT;
        MP_OK(mp_step_plan_get_stats(plan, nullptr, &stats));
        EXPECT_EQ(stats.step, 3);
        for (const Tensor* tensor : {&p, &m, &v, &amax, &words}) {
            results.push_back(bytes_of(*tensor));
        }
    }
    for (std::size_t i = 0; i < 5; ++i) {
        EXPECT_EQ(results[i], results[i + 5]) << i;
    }
}

// ---- tensors -----------------------------------------------------------------------------------

TEST_F(OnCuda, TensorsTravel) {
    const Context cuda = open_context(MP_DEVICE_CUDA);
    const std::vector<float> values = numbers(100000, 5);
    const Tensor there = make_tensor(cuda, MP_DTYPE_FP32, {100000}, values);
    mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP32, {100000});
    desc.device_kind = MP_DEVICE_HOST;
    mp_tensor* raw = nullptr;
    MP_OK(mp_tensor_create(cuda, &desc, &raw));
    const Tensor here(raw);
    MP_OK(mp_tensor_copy(there, nullptr, here));
    MP_OK(mp_context_sync(cuda));
    EXPECT_EQ(values_of(cuda, here), values);
}

TEST_F(OnCuda, TheContextSaysWhatItFound) {
    const Context cuda = open_context(MP_DEVICE_CUDA);
    std::vector<char> text(65536);
    MP_OK(mp_context_describe(cuda, text.data(), text.size(), nullptr));
    const std::string description = text.data();
    for (const char* part : {"\"accelerator\"", "\"instruction_set\"", "\"cublaslt\""}) {
        EXPECT_NE(description.find(part), std::string::npos) << part << " in " << description;
    }
}

} // namespace
