// SPDX-License-Identifier: Apache-2.0
// Tensors whose memory is given back for a while.
#include <gtest/gtest.h>

#include <array>

#include "core_context.hpp"
#include "tensor/tensor.hpp"

namespace mp::test {
namespace {

TEST(TensorMemory, ComesBackAsZeros) {
    const auto context = make_context();
    Stream& stream = context->stream();
    Tensor tensor(context, stream, DType::fp32, {{3}, 1});
    static_cast<float*>(tensor.data())[1] = 2.0F;
    const uint64_t version = tensor.version();
    tensor.drop_memory(stream);
    EXPECT_FALSE(tensor.has_memory());
    EXPECT_EQ(tensor.data(), nullptr);
    EXPECT_THROW(tensor.require_memory("x"), Error);
    tensor.drop_memory(stream); // nothing more to give
    tensor.restore_memory(stream);
    ASSERT_TRUE(tensor.has_memory());
    EXPECT_EQ(static_cast<float*>(tensor.data())[1], 0.0F);
    EXPECT_NE(tensor.version(), version); // copies made from it are old
    static_cast<float*>(tensor.data())[1] = 3.0F;
    tensor.restore_memory(stream);
    EXPECT_EQ(static_cast<float*>(tensor.data())[1], 3.0F);
}

TEST(TensorMemory, IsKeptWhereSomebodyElseHasIt) {
    const auto context = make_context();
    Stream& stream = context->stream();
    std::array<float, 4> memory{};
    Tensor borrowed(context, stream, DType::fp32, {{4}, 1}, memory.data(), {});
    EXPECT_THROW(borrowed.drop_memory(stream), Error);
    Tensor pinned(context, stream, DType::fp32, {{4}, 1});
    pinned.pin();
    EXPECT_THROW(pinned.drop_memory(stream), Error);
    EXPECT_TRUE(pinned.has_memory());
    pinned.unpin();
    pinned.drop_memory(stream);
    EXPECT_FALSE(pinned.has_memory());
}

TEST(TensorMemory, AnEmptyTensorAlwaysHasIt) {
    const auto context = make_context();
    Stream& stream = context->stream();
    Tensor empty(context, stream, DType::fp32, {{0}, 1});
    empty.drop_memory(stream);
    EXPECT_TRUE(empty.has_memory());
}

} // namespace
} // namespace mp::test
