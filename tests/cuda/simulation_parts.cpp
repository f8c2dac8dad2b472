// SPDX-License-Identifier: Apache-2.0
// Steps in parts on a device: the bits of a whole step, and no wait before the step ends.
#include <gtest/gtest.h>

#include "../capi/optimizers.hpp"
#include "library.hpp"
#include "simulated/api.hpp"

namespace mp::test {
namespace {

using namespace mp_test;

constexpr int32_t kCount = 3;

class Parts : public ::testing::Test {
  protected:
    void SetUp() override {
        context_ = open_context(MP_DEVICE_CUDA);
        recipe_ = make_recipe(context_, "bf16_pure_sr");
    }
    Optimizer make() {
        Optimizer made = make_optimizer(context_, recipe_);
        (void)add_group(made);
        for (int32_t i = 0; i < kCount; ++i) {
            const std::string name = 'p' + std::to_string(i);
            const std::vector<float> values = numbers(1000, static_cast<uint64_t>(i));
            const Tensor weight = make_tensor(context_, MP_DTYPE_BF16, {1000}, values);
            EXPECT_TRUE(succeeded(add_param(made, 0, name.c_str(), weight)));
        }
        return made;
    }
    void fill(mp_optimizer* optimizer, uint64_t step) {
        for (int32_t i = 0; i < kCount; ++i) {
            const std::vector<float> values = numbers(1000, step * 10 + static_cast<uint64_t>(i));
            round_into(make_tensor(context_, MP_DTYPE_FP32, {1000}, values),
                       state_of(optimizer, i, "grad"));
        }
    }

    Context context_;
    Recipe recipe_;
};

TEST_F(Parts, TheBitsAreThoseOfAWholeStep) {
    const Optimizer whole = make(), parts = make();
    for (uint64_t step = 1; step <= 3; ++step) {
        fill(whole, step);
        fill(parts, step);
        MP_OK(mp_optimizer_step(whole, nullptr, nullptr));
        MP_OK(mp_optimizer_step_begin(parts, nullptr, nullptr));
        const int64_t before = control().waits;
        for (const int32_t i : {2, 0}) {
            MP_OK(mp_optimizer_step_params(parts, nullptr, &i, 1, nullptr));
        }
        EXPECT_EQ(control().waits, before);
        MP_OK(mp_optimizer_step_end(parts, nullptr));
        for (int32_t i = 0; i < kCount; ++i) {
            for (const char* name : {"param", "exp_avg", "exp_avg_sq"}) {
                EXPECT_TRUE(bytes_of(state_of(parts, i, name)) ==
                            bytes_of(state_of(whole, i, name)))
                    << step << " " << i << " " << name;
            }
        }
    }
}

TEST_F(Parts, AreNotCaptured) {
    const Optimizer optimizer = make();
    const Queue queue = make_queue(context_);
    MP_OK(mp_optimizer_step(optimizer, queue, nullptr)); // what takes memory
    cudaStream_t stream = nullptr;
    MP_OK(mp_queue_get_native(queue, &stream, sizeof(void*)));
    (void)MP_SIMULATED(cudaSetDevice)(0);
    ASSERT_EQ(MP_SIMULATED(cudaStreamBeginCapture)(stream, cudaStreamCaptureModeThreadLocal),
              cudaSuccess);
    MP_FAILS(mp_optimizer_step_begin(optimizer, queue, nullptr), MP_STATUS_BAD_STATE,
             "a step in parts");
    Graph graph;
    EXPECT_EQ(graph.capture(stream), cudaSuccess);
    MP_OK(mp_optimizer_step_begin(optimizer, queue, nullptr));
    ASSERT_EQ(MP_SIMULATED(cudaStreamBeginCapture)(stream, cudaStreamCaptureModeThreadLocal),
              cudaSuccess);
    MP_FAILS(mp_optimizer_step_end(optimizer, queue), MP_STATUS_BAD_STATE, "a step in parts");
    Graph other;
    EXPECT_EQ(other.capture(stream), cudaSuccess);
    const int32_t first = 0; // the step is open still
    MP_FAILS(mp_optimizer_mark_unused(optimizer, queue, &first, 1), MP_STATUS_BAD_STATE,
             "step_end");
    MP_OK(mp_optimizer_step_end(optimizer, queue));
}

} // namespace
} // namespace mp::test
