// SPDX-License-Identifier: Apache-2.0
// Codes of the caller's in place of what a layer quantizes: the same bits, and amaxes that count.
#include "saved.hpp"

using namespace mp_test;
using namespace mp_test::saved;

namespace {
struct SavedCodes : SavedTest {};
} // namespace

TEST_F(SavedCodes, CodesOfTheCallersGiveTheSameBits) {
    for (const char* name : {"fp8_delayed", "fp8_current", "fp8_rowwise", "fp8_block", "mxfp8"}) {
        SCOPED_TRACE(name);
        const Layer plain(context, name, 3), given(context, name, 3);
        const Tensor x = activation(1), dy = activation(2), y = empty(), dx = empty();
        const auto expected = simple(plain.linear, x, dy);
        const auto codes = [&](int32_t product, int32_t operand, mp_tensor* source,
                               const std::vector<int64_t>& shape) {
            int32_t dtype = 0;
            mp_quant_desc quant = MP_QUANT_DESC_INIT;
            EXPECT_TRUE(succeeded(
                mp_linear_get_operand_format(given.linear, product, operand, &dtype, &quant)));
            EXPECT_NE(quant.scaling, 0);
            Tensor result = make_quantized(context, dtype, shape, &quant);
            EXPECT_TRUE(succeeded(
                mp_linear_quantize(given.linear, nullptr, product, operand, source, result)));
            return result;
        };
        const std::vector<int64_t> matrix = {kRows, kSize}, square = {kSize, kSize};
        const Tensor x_codes = codes(MP_PRODUCT_FPROP, MP_OPERAND_INPUT, x, matrix);
        const Tensor w_fprop = codes(MP_PRODUCT_FPROP, MP_OPERAND_WEIGHT, given.w, square);
        const Tensor w_dgrad = codes(MP_PRODUCT_DGRAD, MP_OPERAND_WEIGHT, given.w, square);
        const Tensor dy_codes = codes(MP_PRODUCT_DGRAD, MP_OPERAND_GRAD_OUTPUT, dy, matrix);
        MP_OK(mp_linear_set_weight_codes(given.linear, w_fprop, w_dgrad));
        mp_tensor* held = nullptr;
        MP_OK(mp_linear_get_weight_codes(given.linear, MP_PRODUCT_DGRAD, &held));
        EXPECT_EQ(bytes_of(Tensor(held)), bytes_of(w_dgrad));
        MP_OK(mp_tensor_zero(given.w, nullptr)); // the codes serve
        MP_OK(mp_linear_forward_saved(given.linear, nullptr, x_codes, y, nullptr, 0));
        MP_OK(mp_linear_backward_saved(given.linear, nullptr, nullptr, dy_codes, dx, nullptr,
                                       nullptr, 0));
        EXPECT_EQ(bytes_of(y), expected.y);
        EXPECT_EQ(bytes_of(dx), expected.dx);
        EXPECT_EQ(scaling_of(plain.linear), scaling_of(given.linear));
        MP_OK(mp_linear_set_weight_codes(given.linear, nullptr, nullptr));
        MP_OK(mp_linear_get_weight_codes(given.linear, MP_PRODUCT_FPROP, &held));
        EXPECT_EQ(held, nullptr);
    }
}

// One scale for a tensor: the codes of a forward are those of the weight gradient.
TEST_F(SavedCodes, CodesServeTheWeightGradientToo) {
    const Layer plain(context, "fp8_delayed", 3), given(context, "fp8_delayed", 3);
    const Tensor x = activation(1), dy = activation(2), y = empty(), dx = empty();
    const auto expected = simple(plain.linear, x, dy);
    const Tensor x_codes = make_quantized(context, MP_DTYPE_FP8_E4M3, {kRows, kSize}, nullptr);
    const Tensor dy_codes = make_quantized(context, MP_DTYPE_FP8_E5M2, {kRows, kSize}, nullptr);
    MP_OK(
        mp_linear_quantize(given.linear, nullptr, MP_PRODUCT_WGRAD, MP_OPERAND_INPUT, x, x_codes));
    MP_OK(mp_linear_quantize(given.linear, nullptr, MP_PRODUCT_WGRAD, MP_OPERAND_GRAD_OUTPUT, dy,
                             dy_codes));
    const Saved saved = make_saved(given.linear);
    MP_OK(mp_linear_forward_saved(given.linear, nullptr, x_codes, y, saved, 0));
    MP_OK(
        mp_linear_backward_saved(given.linear, nullptr, saved, dy_codes, dx, given.dw, nullptr, 0));
    EXPECT_EQ((Pass{bytes_of(y), bytes_of(dx), bytes_of(given.dw)}), expected);
    EXPECT_EQ(scaling_of(plain.linear), scaling_of(given.linear));
}

// Codes that somebody else made count by the amax that lies beside them.
TEST_F(SavedCodes, TheAmaxOfForeignCodesCounts) {
    const Layer layer(context, "fp8_delayed", 3, MP_LINEAR_STATS);
    const Tensor x = activation(1, 5.0F), y = empty();
    const Tensor codes = make_quantized(context, MP_DTYPE_FP8_E4M3, {kRows, kSize}, nullptr);
    MP_OK(mp_tensor_quantize(x, nullptr, codes, nullptr, nullptr, nullptr));
    const double amax = static_cast<double>(values_of(context, amax_of(codes))[0]);
    EXPECT_GT(amax, 4.0);
    MP_OK(mp_linear_forward_saved(layer.linear, nullptr, codes, y, nullptr, 0));
    layer.end_step();
    EXPECT_EQ(stats_of(layer.linear, MP_OPERAND_INPUT).history_amax, 0.0); // an evaluation
    MP_OK(mp_linear_forward_saved(layer.linear, nullptr, codes, y, make_saved(layer.linear), 0));
    layer.end_step();
    EXPECT_EQ(stats_of(layer.linear, MP_OPERAND_INPUT).history_amax, amax);
}
