// SPDX-License-Identifier: Apache-2.0
// The optimizer when memory runs out at every single allocation: nothing is lost, nothing half-added.
#include "optim/optimizer.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "enabled.hpp"

using namespace mp;

namespace {

std::atomic<int64_t> allocations_left{-1}; // -1: no limit
std::atomic<int64_t> live_bytes{0};

void* allocate(std::size_t size, std::size_t alignment, void* /*payload*/) {
    if (allocations_left == 0) {
        return nullptr;
    }
    if (allocations_left > 0) {
        --allocations_left;
    }
    live_bytes += static_cast<int64_t>(size);
    return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void release(void* pointer, std::size_t size, std::size_t /*alignment*/, void* /*payload*/) {
    live_bytes -= static_cast<int64_t>(size);
    std::free(pointer);
}

void ignore(int32_t /*level*/, const char* /*message*/, void* /*payload*/) {}

std::shared_ptr<Context> make_context() {
    ContextOptions options;
    options.memory = {allocate, release, nullptr};
    options.log = {ignore, nullptr};
    options.num_threads = 1;
    return std::make_shared<Context>(options, enabled_backends(), nullptr);
}

std::shared_ptr<Tensor> make_param(const std::shared_ptr<Context>& context, DType dtype) {
    Shape shape;
    shape.ndim = 1;
    shape.sizes[0] = 1000;
    return std::make_shared<Tensor>(context, context->stream(), dtype, shape);
}

} // namespace

TEST(OptimizerMemory, EveryAllocationMayFail) {
    for (const char* name : {"fp32", "fp16_mixed", "bf16_pure_kahan"}) {
        const recipe::Recipe recipe = recipe::find_preset(name).recipe;
        bool finished = false;
        for (int64_t k = 0; !finished; ++k) {
            ASSERT_LT(k, 200);
            allocations_left = -1;
            const auto context = make_context();
            optim::Optimizer optimizer(context, recipe, {});
            optimizer.groups().add(numerics::usual_hyper(numerics::RuleId::adamw));
            const auto param = make_param(context, dtype_of(recipe.weight));
            allocations_left = k;
            bool added = false;
            try {
                optimizer.add_parameter(context->stream(), 0, {"p", param, nullptr, nullptr});
                added = true;
                optimizer.step(context->stream(), nullptr);
                finished = true;
            } catch (const Error& error) {
                EXPECT_EQ(error.status().code(), Code::out_of_memory) << error.what();
            }
            allocations_left = -1;
            EXPECT_EQ(optimizer.parameters().count(), added ? 1 : 0);
            if (!added) { // the name is free again
                optimizer.add_parameter(context->stream(), 0, {"p", param, nullptr, nullptr});
            }
            const int64_t before = optimizer.tables().read_state(context->stream()).step;
            EXPECT_EQ(before, finished ? 1 : 0);
            optimizer.step(context->stream(), nullptr);
            EXPECT_EQ(optimizer.tables().read_state(context->stream()).step, before + 1);
        }
    }
    EXPECT_EQ(live_bytes, 0);
}
