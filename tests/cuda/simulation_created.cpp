// SPDX-License-Identifier: Apache-2.0
// Calls that take no queue have done all they do when they return. So what they made may be used on any queue: nobody could tell
// that one to come after them.
#include <gtest/gtest.h>

#include "../capi/layers.hpp"
#include "../capi/training.hpp"
#include "library.hpp"
#include "simulated/api.hpp"

namespace mp::test {
namespace {

using namespace mp_test;

class Created : public ::testing::Test {
  protected:
    void SetUp() override {
        context_ = open_context(MP_DEVICE_CUDA);
        recipe_ = make_recipe(context_, "fp8_delayed");
        weight_ = make_tensor(context_, MP_DTYPE_FP32, {32, 32});
    }
    // That the default queue has nothing to do: nobody waits for it.
    void expect_done(const char* call) {
        const int64_t before = control().waits;
        EXPECT_TRUE(succeeded(mp_context_sync(context_)));
        EXPECT_EQ(control().waits, before) << call << " left work on the default queue";
    }
    Linear make_layer() { return make_linear(context_, recipe_, linear_desc(32, 32), weight_); }
    // In a group of its own.
    void add_weight(mp_optimizer* optimizer) {
        int32_t group = 0;
        mp_param_group_desc group_desc = MP_PARAM_GROUP_DESC_INIT;
        MP_OK(mp_optimizer_add_group(optimizer, &group_desc, &group));
        expect_done("mp_optimizer_add_group");
        mp_param_desc desc = MP_PARAM_DESC_INIT;
        desc.name = "w";
        desc.param = weight_;
        MP_OK(mp_optimizer_add_param(optimizer, group, &desc, nullptr));
        expect_done("mp_optimizer_add_param");
    }

    Context context_;
    Recipe recipe_;
    Tensor weight_;
};

TEST_F(Created, Tensors) {
    const Tensor plain = make_tensor(context_, MP_DTYPE_FP32, {100});
    expect_done("mp_tensor_create");
    const Tensor codes = make_quantized(context_, MP_DTYPE_FP8_E4M3, {64, 64}, nullptr);
    expect_done("mp_tensor_create_quantized");
    const std::array<int64_t, 2> shape = {32, 32};
    const std::vector<float> values(32 * 32, 1.0F);
    for (const auto make : {mp_recipe_create_weight, mp_recipe_create_weight_codes}) {
        mp_tensor* weight = nullptr;
        MP_OK(make(context_, recipe_, 2, shape.data(), values.data(), &weight));
        const Tensor owned(weight);
        expect_done("mp_recipe_create_weight or _codes");
    }
}

TEST_F(Created, ATensorIsThereForAnyQueue) {
    mp_queue* raw = nullptr;
    MP_OK(mp_queue_create(context_, &raw));
    const Queue queue(raw);
    const std::vector<float> values(100, 3.0F);
    const Tensor tensor = make_tensor(context_, MP_DTYPE_FP32, {100});
    MP_OK(mp_tensor_write(tensor, queue, values.data(), 400));
    MP_OK(mp_queue_sync(queue));
    EXPECT_EQ(values_of(context_, tensor), values) << "its zeros came later";
}

TEST_F(Created, Layers) {
    const Linear layer = make_layer();
    expect_done("mp_linear_create");
    mp_saved* saved = nullptr;
    MP_OK(mp_saved_create(layer, &saved));
    const Saved owned(saved);
    expect_done("mp_saved_create");
    const mp_linear_monitor_fn monitor = [](void*, const char*, const mp_linear_stats*,
                                            const char*) {};
    MP_OK(mp_linear_set_monitor(layer, "a layer", 1, monitor, nullptr));
    expect_done("mp_linear_set_monitor");
    std::size_t bytes = 0;
    MP_OK(mp_linear_get_scaling(layer, nullptr, 0, &bytes));
    std::vector<unsigned char> scaling(bytes);
    MP_OK(mp_linear_get_scaling(layer, scaling.data(), bytes, nullptr));
    MP_OK(mp_linear_set_scaling(layer, scaling.data(), bytes));
    expect_done("mp_linear_set_scaling");
}

TEST_F(Created, OptimizersAndScalers) {
    const Optimizer optimizer = make_optimizer(context_, recipe_);
    add_weight(optimizer);
    mp_scaler* raw = nullptr;
    MP_OK(mp_scaler_create(context_, nullptr, &raw));
    const Scaler scaler(raw);
    expect_done("mp_scaler_create");
    MP_OK(mp_scaler_create_from_recipe(context_, recipe_, &raw));
    const Scaler other(raw);
    expect_done("mp_scaler_create_from_recipe");
}

TEST_F(Created, LoadedCheckpoints) {
    const Linear layer = make_layer();
    mp_optimizer_desc options = MP_OPTIMIZER_DESC_INIT;
    options.flags = MP_OPTIMIZER_OFFLOAD; // whose weights are uploaded
    mp_optimizer* made = nullptr;
    MP_OK(mp_optimizer_create(context_, recipe_, &options, &made));
    const Optimizer optimizer(made);
    add_weight(optimizer);
    mp_checkpoint* raw = nullptr;
    MP_OK(mp_checkpoint_create(context_, nullptr, nullptr, &raw));
    const Checkpoint checkpoint(raw);
    MP_OK(mp_checkpoint_add_linear(checkpoint, "layer", layer));
    MP_OK(mp_checkpoint_add_optimizer(checkpoint, optimizer));
    const Folder folder("created");
    MP_OK(mp_checkpoint_save(checkpoint, folder.c_str(), 1, 0));
    MP_OK(mp_checkpoint_load(checkpoint, folder.c_str(), 0, nullptr));
    expect_done("mp_checkpoint_load");
}

// A replay calls none.
TEST_F(Created, AStepWithAMonitorIsNotCaptured) {
    const Linear layer = make_layer();
    const mp_linear_monitor_fn monitor = [](void*, const char*, const mp_linear_stats*,
                                            const char*) {};
    MP_OK(mp_linear_set_monitor(layer, "a layer", 10, monitor, nullptr));
    const Optimizer optimizer = make_optimizer(context_, recipe_);
    add_weight(optimizer);
    mp_linear* const layers[] = {layer};
    MP_OK(mp_optimizer_set_linears(optimizer, layers, 1));
    mp_queue* raw = nullptr;
    MP_OK(mp_queue_create(context_, &raw));
    const Queue queue(raw);
    EXPECT_TRUE(done(mp_optimizer_step(optimizer, queue, nullptr))); // what takes memory
    cudaStream_t stream = nullptr;
    MP_OK(mp_queue_get_native(queue, &stream, sizeof(void*)));
    (void)MP_SIMULATED(cudaSetDevice)(0);
    ASSERT_EQ(MP_SIMULATED(cudaStreamBeginCapture)(stream, cudaStreamCaptureModeThreadLocal),
              cudaSuccess);
    MP_FAILS(mp_optimizer_step(optimizer, queue, nullptr), MP_STATUS_BAD_STATE, "monitor");
    Graph graph;
    EXPECT_EQ(graph.capture(stream), cudaSuccess);
    EXPECT_TRUE(done(mp_optimizer_step(optimizer, queue, nullptr)));
    mp_optimizer_stats stats{};
    stats.struct_size = sizeof stats;
    MP_OK(mp_optimizer_get_stats(optimizer, queue, &stats));
    EXPECT_EQ(stats.step, 2);
}

TEST_F(Created, StepPlans) {
    const Tensor grad = make_tensor(context_, MP_DTYPE_FP32, {32, 32});
    const Tensor states = make_tensor(context_, MP_DTYPE_FP32, {2, 32, 32});
    void* memory[3] = {};
    MP_OK(mp_tensor_get_data(weight_, &memory[0]));
    MP_OK(mp_tensor_get_data(grad, &memory[1]));
    MP_OK(mp_tensor_get_data(states, &memory[2]));
    mp_step_args args = MP_STEP_ARGS_INIT;
    args.lr = 1e-3;
    args.step = 1;
    mp_step_slot slot = MP_STEP_SLOT_INIT;
    slot.param.dtype = slot.grad.dtype = MP_DTYPE_FP32;
    slot.states[0].dtype = slot.states[1].dtype = MP_DTYPE_FP32;
    slot.count = 32 * 32;
    slot.param.data = memory[0];
    slot.grad.data = memory[1];
    slot.states[0].data = memory[2];
    slot.states[1].data = static_cast<float*>(memory[2]) + slot.count;
    mp_step_plan* plan = nullptr;
    EXPECT_TRUE(done(mp_step_plan_create(context_, &args, &slot, 1, &plan)));
    const StepPlan owned(plan);
    expect_done("mp_step_plan_create");
}

} // namespace
} // namespace mp::test
