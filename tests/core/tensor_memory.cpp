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

TEST(TensorMemory, OfTheCallersIsUsedAgainWhereItLies) {
    const auto context = make_context();
    Stream& stream = context->stream();
    std::array<float, 4> memory{1.0F, 2.0F, 3.0F, 4.0F};
    const Shape shape = {{4}, 1};
    const auto whole =
        std::make_shared<Tensor>(context, stream, DType::fp32, shape, memory.data(), Deleter{});
    Tensor view(whole, 1, {{3}, 1});
    Tensor placed(context, stream, DType::fp32, shape, memory.data(), {}, Deferred{});
    EXPECT_TRUE(whole->is_lent() && view.is_lent() && placed.is_lent() && placed.is_placed());
    EXPECT_FALSE(placed.has_memory());
    EXPECT_TRUE(placed.overlaps(view)) << "it will";
    view.drop_memory(stream);
    EXPECT_FALSE(view.has_memory());
    EXPECT_EQ(memory[2], 3.0F);
    view.restore_memory(stream);
    EXPECT_EQ(view.data(), &memory[1]);
    EXPECT_EQ(memory[2], 0.0F);
    EXPECT_EQ(memory[0], 1.0F);
    placed.restore_memory(stream, true); // in memory of the library's
    EXPECT_NE(placed.data(), memory.data());
    EXPECT_EQ(placed.place(), placed.data());
    placed.drop_memory(stream);
    placed.restore_memory(stream);
    EXPECT_EQ(placed.data(), memory.data());
}

TEST(TensorMemory, IsKeptWhereSomebodyElseHasIt) {
    const auto context = make_context();
    Stream& stream = context->stream();
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
