// SPDX-License-Identifier: Apache-2.0
// Wrong calls of what takes kept inputs, memory for them and codes: each is refused, in words.
#include "memory.hpp"
#include "saved.hpp"

using namespace mp_test;
using namespace mp_test::saved;

namespace {

struct SavedMisuse : SavedTest {
    const Layer layer{context, "fp8_current", 3}, other{context, "bf16_mixed", 4};
    const Saved saved = make_saved(layer.linear);
    const Tensor x = activation(1), dy = activation(2), y = empty(), dx = empty();
    const Tensor e5m2 = make_quantized(context, MP_DTYPE_FP8_E5M2, {kSize, kSize}, nullptr);
};

} // namespace

TEST_F(SavedMisuse, WrongForwardsAndBackwards) {
    const Saved foreign = make_saved(other.linear);
    EXPECT_TRUE(fails(mp_linear_forward_saved(layer.linear, nullptr, x, y, foreign, 0),
                      MP_STATUS_INVALID_ARGUMENT, {"another layer"}));
    EXPECT_TRUE(fails(mp_linear_forward_saved(layer.linear, nullptr, x, y, saved, 4),
                      MP_STATUS_INVALID_ARGUMENT, {"flags"}));
    EXPECT_TRUE(fails(mp_linear_forward_saved(layer.linear, nullptr, x, y, saved,
                                              MP_FORWARD_DROP | MP_FORWARD_RECOMPUTE),
                      MP_STATUS_INVALID_ARGUMENT, {"exclude"}));
    EXPECT_TRUE(
        fails(mp_linear_forward_saved(layer.linear, nullptr, x, y, nullptr, MP_FORWARD_DROP),
              MP_STATUS_INVALID_ARGUMENT, {"saved is NULL"}));
    EXPECT_TRUE(fails(mp_linear_forward_saved(layer.linear, nullptr, x, nullptr, saved, 0),
                      MP_STATUS_NULL_ARGUMENT, {"y"}));
    EXPECT_TRUE(
        fails(mp_linear_forward_saved(layer.linear, nullptr, x, y, saved, MP_FORWARD_RECOMPUTE),
              MP_STATUS_BAD_STATE, {"before any forward"}));
    EXPECT_TRUE(
        fails(mp_linear_backward_saved(layer.linear, nullptr, saved, dy, dx, layer.dw, nullptr, 0),
              MP_STATUS_BAD_STATE, {"before any forward"}));
    EXPECT_TRUE(fails(
        mp_linear_backward_saved(layer.linear, nullptr, nullptr, dy, dx, layer.dw, nullptr, 0),
        MP_STATUS_NULL_ARGUMENT, {"saved"}));
    EXPECT_TRUE(fails(
        mp_linear_backward_saved(layer.linear, nullptr, nullptr, dy, nullptr, nullptr, nullptr, 0),
        MP_STATUS_INVALID_ARGUMENT, {"dx", "dw"}));
}

TEST_F(SavedMisuse, OtherRowsThanTheForward) {
    MP_OK(mp_linear_forward_saved(layer.linear, nullptr, x, y, saved, 0));
    const Tensor few = make_tensor(context, MP_DTYPE_FP32, {kRows / 2, kSize});
    EXPECT_TRUE(
        fails(mp_linear_forward_saved(layer.linear, nullptr, few, few, saved, MP_FORWARD_RECOMPUTE),
              MP_STATUS_INVALID_SHAPE, {"rows"}));
    EXPECT_TRUE(fails(
        mp_linear_backward_saved(layer.linear, nullptr, saved, few, nullptr, layer.dw, nullptr, 0),
        MP_STATUS_INVALID_SHAPE, {"rows"}));
}

TEST_F(SavedMisuse, WrongMemory) {
    MP_OK(mp_linear_forward_saved(layer.linear, nullptr, x, y, saved, 0));
    const Block memory(64 * 1024);
    EXPECT_TRUE(fails(mp_saved_set_memory(saved, memory.memory.get(), memory.bytes),
                      MP_STATUS_BAD_STATE, {"library's memory"}));
    const Saved fresh = make_saved(layer.linear);
    EXPECT_TRUE(fails(mp_saved_set_memory(fresh, memory.memory.get() + 64, 1024),
                      MP_STATUS_INVALID_ARGUMENT, {"256"}));
    EXPECT_TRUE(
        fails(mp_saved_set_memory(fresh, nullptr, 8), MP_STATUS_INVALID_ARGUMENT, {"NULL"}));
    MP_OK(mp_saved_set_memory(fresh, memory.memory.get(), 16));
    EXPECT_TRUE(fails(mp_linear_forward_saved(layer.linear, nullptr, x, y, fresh, 0),
                      MP_STATUS_INVALID_ARGUMENT, {"16", "mp_linear_get_saved_bytes"}));
    size_t bytes = 0;
    EXPECT_TRUE(fails(mp_linear_get_saved_bytes(layer.linear, -1, &bytes), MP_STATUS_INVALID_SHAPE,
                      {"rows"}));
}

TEST_F(SavedMisuse, WrongOperands) {
    int32_t dtype = 0;
    mp_quant_desc quant = MP_QUANT_DESC_INIT;
    EXPECT_TRUE(
        fails(mp_linear_get_operand_format(layer.linear, 3, MP_OPERAND_INPUT, &dtype, &quant),
              MP_STATUS_INVALID_ARGUMENT, {"product"}));
    EXPECT_TRUE(fails(mp_linear_get_operand_format(layer.linear, MP_PRODUCT_FPROP,
                                                   MP_OPERAND_GRAD_OUTPUT, &dtype, &quant),
                      MP_STATUS_INVALID_ARGUMENT, {"fprop", "grad_output"}));
    MP_OK(mp_linear_get_operand_format(other.linear, MP_PRODUCT_WGRAD, MP_OPERAND_INPUT, &dtype,
                                       &quant));
    EXPECT_EQ(dtype, MP_DTYPE_BF16);
    EXPECT_EQ(quant.scaling, 0);
    EXPECT_TRUE(fails(mp_linear_set_weight_codes(layer.linear, e5m2, nullptr),
                      MP_STATUS_INVALID_DTYPE, {"fp8_e5m2", "fp8_e4m3"}));
    EXPECT_TRUE(fails(
        mp_linear_quantize(other.linear, nullptr, MP_PRODUCT_FPROP, MP_OPERAND_INPUT, x, e5m2),
        MP_STATUS_INVALID_ARGUMENT, {"mp_tensor_cast"}));
    EXPECT_TRUE(fails(
        mp_linear_quantize(layer.linear, nullptr, MP_PRODUCT_FPROP, MP_OPERAND_INPUT, x, e5m2),
        MP_STATUS_INVALID_DTYPE, {"fp8_e5m2"}));
    mp_tensor* none = nullptr;
    EXPECT_TRUE(fails(mp_linear_get_multiply_tensor(layer.linear, MP_OPERAND_INPUT, &none),
                      MP_STATUS_BAD_STATE, {"delayed"}));
}

TEST_F(SavedMisuse, WrongRounding) {
    MP_OK(mp_linear_forward_saved(layer.linear, nullptr, x, y, saved, 0));
    mp_cast_desc rounding = MP_CAST_DESC_INIT;
    rounding.rounding = 9;
    EXPECT_TRUE(fails(mp_linear_set_gradient_rounding(layer.linear, &rounding),
                      MP_STATUS_INVALID_ARGUMENT, {"rounding"}));
    rounding = MP_CAST_DESC_INIT;
    rounding.flags = MP_CAST_SATURATE;
    EXPECT_TRUE(fails(mp_linear_set_gradient_rounding(layer.linear, &rounding),
                      MP_STATUS_INVALID_ARGUMENT, {"flags"}));
    rounding = MP_CAST_DESC_INIT;
    rounding.rounding = MP_ROUND_STOCHASTIC;
    MP_OK(mp_linear_set_gradient_rounding(layer.linear, &rounding));
    EXPECT_TRUE(
        fails(mp_linear_backward_saved(layer.linear, nullptr, saved, dy, nullptr, e5m2, nullptr, 0),
              MP_STATUS_UNSUPPORTED, {"quantized", "nearest"}));
}
