// SPDX-License-Identifier: Apache-2.0
// Quantized tensors from outside: how they are made, what they hold, what they refuse.
#include <cmath>
#include <limits>

#include "support.hpp"

using namespace mp_test;

namespace {

struct QuantTest : ::testing::Test {
    Context context = make_context();
    mp_tensor* raw = nullptr;

    mp_status create(int32_t dtype, const std::vector<int64_t>& shape, int32_t scaling,
                     int32_t rule = 0, uint32_t flags = 0) {
        const mp_tensor_desc desc = tensor_desc(dtype, shape);
        mp_quant_desc quant = MP_QUANT_DESC_INIT;
        quant.scaling = scaling;
        quant.rule = rule;
        quant.flags = flags;
        return mp_tensor_create_quantized(context, &desc, &quant, &raw);
    }
    Tensor make(int32_t dtype, const std::vector<int64_t>& shape, int32_t scaling, int32_t rule = 0,
                uint32_t flags = 0) {
        EXPECT_TRUE(succeeded(create(dtype, shape, scaling, rule, flags)));
        return Tensor(raw);
    }
    std::vector<float> dequantized(mp_tensor* tensor, const std::vector<int64_t>& shape) {
        const Tensor wide = make_tensor(context, MP_DTYPE_FP32, shape);
        EXPECT_TRUE(succeeded(mp_tensor_dequantize(tensor, nullptr, wide)));
        return values_of(context, wide);
    }
};

struct Case {
    int32_t scaling;
    int32_t dtype;
    std::vector<int64_t> scale_shape; // for 130 x 260
    double largest_error;             // of a value, as a share of the tensor's amax
};

} // namespace

TEST_F(QuantTest, EveryScalingHoldsTheValues) {
    const std::vector<int64_t> shape = {130, 260};
    const std::vector<float> values = numbers(130 * 260, 1);
    const Tensor source = make_tensor(context, MP_DTYPE_FP32, shape, values);
    // Half a step of the largest binade: 2^-4 of it for E4M3, 2^-3 for E5M2; amax is below 1. A power of
    // two may lie up to 2 above what the block needs; E2M1 has steps of 2 below 6.
    const Case cases[] = {
        {MP_SCALING_TENSOR, MP_DTYPE_FP8_E4M3, {1, 1}, 0x1p-4},
        {MP_SCALING_TENSOR, MP_DTYPE_FP8_E5M2, {1, 1}, 0x1p-3},
        {MP_SCALING_ROW, MP_DTYPE_FP8_E4M3, {130, 1}, 0x1p-4},
        {MP_SCALING_COLUMN, MP_DTYPE_FP8_E4M3, {1, 260}, 0x1p-4},
        {MP_SCALING_BLOCK_1X128, MP_DTYPE_FP8_E4M3, {130, 3}, 0x1p-4},
        {MP_SCALING_BLOCK_128X1, MP_DTYPE_FP8_E4M3, {2, 260}, 0x1p-4},
        {MP_SCALING_BLOCK_128X128, MP_DTYPE_FP8_E4M3, {2, 3}, 0x1p-4},
        {MP_SCALING_MX_1X32, MP_DTYPE_FP8_E4M3, {130, 9}, 0x1p-4},
        {MP_SCALING_MX_32X1, MP_DTYPE_FP8_E4M3, {5, 260}, 0x1p-4},
        {MP_SCALING_MX_1X32, MP_DTYPE_FP4_E2M1, {130, 9}, 1.0 / 3.0},
        {MP_SCALING_NVFP4, MP_DTYPE_FP4_E2M1, {130, 17}, 0.25},
    };
    for (const Case& c : cases) {
        SCOPED_TRACE(c.scaling);
        const Tensor quantized = make(c.dtype, shape, c.scaling);
        mp_quant_stats stats = MP_QUANT_STATS_INIT;
        MP_OK(mp_tensor_quantize(source, nullptr, quantized, nullptr, nullptr, &stats));
        EXPECT_EQ(stats.elements, 130 * 260);
        EXPECT_EQ(stats.non_finite, 0);
        const std::vector<float> back = dequantized(quantized, shape);
        double amax = 0.0;
        for (std::size_t i = 0; i < values.size(); ++i) {
            amax = std::fmax(amax, std::fabs(static_cast<double>(values[i])));
            ASSERT_NEAR(back[i], values[i], c.largest_error) << i;
        }
        EXPECT_EQ(stats.amax, amax);
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        MP_OK(mp_tensor_get_desc(scales_of(quantized), &desc));
        EXPECT_EQ((std::vector<int64_t>{desc.shape[0], desc.shape[1]}), c.scale_shape);
        mp_quant_desc quant = MP_QUANT_DESC_INIT;
        MP_OK(mp_tensor_get_quant_desc(quantized, &quant));
        EXPECT_EQ(quant.scaling, c.scaling);
    }
}

TEST_F(QuantTest, PublishedScales) {
    const struct {
        float amax;
        int32_t rule;
        uint32_t flags;
        float scale_inv;
    } rows[] = {
        {448.0F, MP_SCALE_RULE_CURRENT, 0, 1.0F},
        {1.0F, MP_SCALE_RULE_CURRENT, MP_QUANT_POWER_OF_TWO, 0x1p-8F},
        {0.0F, MP_SCALE_RULE_CURRENT, 0, 1.0F},
        {10.0F, MP_SCALE_RULE_MSAMP, 0, 0x1p-5F},
        {449.0F, MP_SCALE_RULE_MSAMP, 0, 2.0F},
        {7.0F, MP_SCALE_RULE_DEEPSEEK, MP_QUANT_POWER_OF_TWO, 0x1p-6F},
        {448.0F, MP_SCALE_RULE_DEEPSEEK, 0, 1.0F},
    };
    for (const auto& row : rows) {
        const Tensor source = make_tensor(context, MP_DTYPE_FP32, {2}, {row.amax, 0.0F});
        const Tensor quantized =
            make(MP_DTYPE_FP8_E4M3, {2}, MP_SCALING_TENSOR, row.rule, row.flags);
        MP_OK(mp_tensor_quantize(source, nullptr, quantized, nullptr, nullptr, nullptr));
        EXPECT_EQ(values_of(context, scales_of(quantized))[0], row.scale_inv)
            << row.amax << " by rule " << row.rule;
    }
    // The exponent is rounded up by exact arithmetic: 1.75 / 448 is 2^-8, a little more is 2^-7.
    for (const auto& [amax, byte] :
         {std::pair{1.75F, 119}, std::pair{std::nextafter(1.75F, 2.0F), 120}}) {
        const Tensor source = make_tensor(context, MP_DTYPE_FP32, {2}, {amax, 0.0F});
        const Tensor quantized = make(MP_DTYPE_FP8_E4M3, {2}, MP_SCALING_MX_1X32);
        MP_OK(mp_tensor_quantize(source, nullptr, quantized, nullptr, nullptr, nullptr));
        EXPECT_EQ(bytes_of(scales_of(quantized))[0], byte);
    }
}

// A column 200 times larger, as activations have: computed elsewhere as 32.4 dB under one scale and 50.8 dB with
// scales of 1x128, where the outlier is its block's largest element and exact.
TEST_F(QuantTest, BlocksConfineAnOutlier) {
    std::vector<float> values(64 * 512);
    for (uint64_t part = 0; part < 12; ++part) { // their sum is nearly a Gaussian
        const std::vector<float> uniform = numbers(values.size(), 9 + part);
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] += 0.5F * uniform[i];
        }
    }
    for (std::size_t row = 0; row < 64; ++row) {
        values[row * 512 + 77] *= 200.0F;
    }
    const Tensor source = make_tensor(context, MP_DTYPE_FP32, {64, 512}, values);
    const auto decibels = [&](int32_t scaling) {
        const Tensor quantized = make(MP_DTYPE_FP8_E4M3, {64, 512}, scaling);
        EXPECT_TRUE(
            succeeded(mp_tensor_quantize(source, nullptr, quantized, nullptr, nullptr, nullptr)));
        const std::vector<float> back = dequantized(quantized, {64, 512});
        double signal = 0.0;
        double noise = 0.0;
        for (std::size_t i = 0; i < values.size(); ++i) {
            const double error = static_cast<double>(values[i]) - static_cast<double>(back[i]);
            signal += static_cast<double>(values[i]) * static_cast<double>(values[i]);
            noise += error * error;
        }
        return 10.0 * std::log10(signal / noise);
    };
    EXPECT_NEAR(decibels(MP_SCALING_TENSOR), 32.4, 2.0);
    EXPECT_NEAR(decibels(MP_SCALING_BLOCK_1X128), 50.8, 2.0);
}

TEST_F(QuantTest, NothingInfiniteBecomesAFiniteCode) {
    const float inf = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const Tensor source = make_tensor(context, MP_DTYPE_FP32, {1, 4}, {1.0F, inf, -inf, nan});
    for (const int32_t scaling : {MP_SCALING_TENSOR, MP_SCALING_ROW, MP_SCALING_BLOCK_1X128}) {
        const Tensor quantized = make(MP_DTYPE_FP8_E4M3, {1, 4}, scaling);
        mp_quant_stats stats = MP_QUANT_STATS_INIT;
        MP_OK(mp_tensor_quantize(source, nullptr, quantized, nullptr, nullptr, &stats));
        EXPECT_EQ(stats.non_finite, 3);
        EXPECT_TRUE(std::isnan(stats.amax));
        const std::vector<float> back = dequantized(quantized, {1, 4});
        EXPECT_TRUE(std::isfinite(back[0]));
        for (int i = 1; i < 4; ++i) {
            EXPECT_FALSE(std::isfinite(back[static_cast<std::size_t>(i)])) << scaling << " " << i;
        }
        const float scale_inv = values_of(context, scales_of(quantized))[0];
        EXPECT_TRUE(std::isfinite(scale_inv) && scale_inv > 0.0F) << scale_inv;
    }
}

TEST_F(QuantTest, CountsWhatSaturatesAndUnderflows) {
    // The delayed scale of a layer can be too small or too large; here a margin and a tiny element are.
    const Tensor source = make_tensor(context, MP_DTYPE_FP32, {4}, {448.0F, 1e-4F, 0.0F, -1.0F});
    const Tensor quantized = make(MP_DTYPE_FP8_E4M3, {4}, MP_SCALING_TENSOR);
    mp_quant_stats stats = MP_QUANT_STATS_INIT;
    MP_OK(mp_tensor_quantize(source, nullptr, quantized, nullptr, nullptr, &stats));
    EXPECT_EQ(stats.underflowed, 1);
    EXPECT_EQ(stats.saturated, 0);
    // OCP's own rule saturates what lies between 448 and 512 of the block's binade.
    const Tensor five_hundred = make_tensor(context, MP_DTYPE_FP32, {2}, {500.0F, 1.0F});
    const Tensor mx = make(MP_DTYPE_FP8_E4M3, {2}, MP_SCALING_MX_1X32, MP_SCALE_RULE_MX_FLOOR);
    MP_OK(mp_tensor_quantize(five_hundred, nullptr, mx, nullptr, nullptr, &stats));
    EXPECT_EQ(stats.saturated, 1);
    EXPECT_EQ(dequantized(mx, {2})[0], 448.0F);
}

TEST_F(QuantTest, TransposedCodesAreTheSameCodes) {
    const std::vector<float> values = numbers(37 * 65, 5);
    const Tensor source = make_tensor(context, MP_DTYPE_BF16, {37, 65}, values);
    const Tensor quantized = make(MP_DTYPE_FP8_E4M3, {37, 65}, MP_SCALING_TENSOR);
    const Tensor turned = make_tensor(context, MP_DTYPE_FP8_E4M3, {65, 37});
    MP_OK(mp_tensor_quantize(source, nullptr, quantized, turned, nullptr, nullptr));
    const std::vector<unsigned char> codes = bytes_of(quantized);
    const std::vector<unsigned char> other = bytes_of(turned);
    for (std::size_t i = 0; i < 37; ++i) {
        for (std::size_t j = 0; j < 65; ++j) {
            ASSERT_EQ(codes[i * 65 + j], other[j * 37 + i]) << i << " " << j;
        }
    }
}

TEST_F(QuantTest, CodesAndScalesAreLentSeparately) {
    const Tensor quantized = make(MP_DTYPE_FP8_E4M3, {4, 256}, MP_SCALING_BLOCK_1X128);
    const Tensor scales = scales_of(quantized);
    struct DLManagedTensorVersioned* lent = nullptr;
    MP_OK(mp_dlpack_export(quantized, &lent));
    MP_OK(mp_dlpack_import(context, lent, &raw)); // gives back, too
    const Tensor codes(raw);
    MP_OK(mp_dlpack_export(scales, &lent));
    MP_OK(mp_dlpack_import(context, lent, &raw));
    const Tensor factors(raw);
    EXPECT_EQ(data_of(quantized), data_of(codes));
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    MP_OK(mp_tensor_get_desc(factors, &desc));
    EXPECT_EQ(desc.dtype, MP_DTYPE_FP32);
    EXPECT_EQ(desc.shape[1], 2);
    MP_FAILS(mp_tensor_get_scales(codes, &raw), MP_STATUS_INVALID_ARGUMENT, "has no scales");
}

TEST_F(QuantTest, EmptyTensorsAreOrdinary) {
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{0, 8}, std::vector<int64_t>{8, 0}, std::vector<int64_t>{0}}) {
        const Tensor source = make_tensor(context, MP_DTYPE_FP32, shape);
        for (int32_t scaling = MP_SCALING_TENSOR; scaling <= MP_SCALING_MX_32X1; ++scaling) {
            const Tensor quantized = make(MP_DTYPE_FP8_E4M3, shape, scaling);
            MP_OK(mp_tensor_quantize(source, nullptr, quantized, nullptr, nullptr, nullptr));
            MP_OK(mp_tensor_dequantize(quantized, nullptr, source));
        }
    }
}

TEST_F(QuantTest, PartsThatDoNotBelongTogether) {
    MP_FAILS(create(MP_DTYPE_BF16, {4}, MP_SCALING_TENSOR), MP_STATUS_INVALID_DTYPE, "bf16");
    MP_FAILS(create(MP_DTYPE_FP16, {4}, MP_SCALING_TENSOR), MP_STATUS_INVALID_DTYPE, "msamp");
    MP_FAILS(create(MP_DTYPE_FP8_E4M3, {4}, MP_SCALING_NVFP4), MP_STATUS_INVALID_ARGUMENT, "NVFP4");
    MP_FAILS(create(MP_DTYPE_FP4_E2M1, {4}, MP_SCALING_NVFP4, 0, MP_QUANT_POWER_OF_TWO),
             MP_STATUS_INVALID_ARGUMENT, "powers of two");
    mp_quant_desc margin = MP_QUANT_DESC_INIT;
    margin.scaling = MP_SCALING_NVFP4;
    margin.margin = 1;
    const mp_tensor_desc four = tensor_desc(MP_DTYPE_FP4_E2M1, {4});
    MP_FAILS(mp_tensor_create_quantized(context, &four, &margin, &raw), MP_STATUS_INVALID_ARGUMENT,
             "NVFP4", "margin");
    MP_FAILS(create(MP_DTYPE_FP4_E2M1, {64, 64}, MP_SCALING_MX_32X1), MP_STATUS_INVALID_ARGUMENT,
             "1x32");
    MP_FAILS(create(MP_DTYPE_FP4_E2M1, {64, 64}, MP_SCALING_ROW), MP_STATUS_INVALID_DTYPE,
             "fp4_e2m1");
    MP_FAILS(create(MP_DTYPE_FP8_E4M3, {4}, MP_SCALING_MX_1X32, MP_SCALE_RULE_CURRENT),
             MP_STATUS_INVALID_ARGUMENT, "mx rules");
    MP_FAILS(create(MP_DTYPE_FP8_E4M3, {4}, MP_SCALING_ROW, MP_SCALE_RULE_MSAMP),
             MP_STATUS_INVALID_ARGUMENT, "one scale");
    MP_FAILS(create(MP_DTYPE_FP8_E4M3, {4}, 99), MP_STATUS_INVALID_ARGUMENT, "99");
    MP_FAILS(create(MP_DTYPE_FP8_E4M3, {4}, 0, 99), MP_STATUS_INVALID_ARGUMENT, "99");
    MP_FAILS(create(MP_DTYPE_FP8_E4M3, {4}, 0, 0, 0x80), MP_STATUS_INVALID_ARGUMENT, "flags");
}

TEST_F(QuantTest, WrongTensorsAreRefused) {
    const Tensor plain = make_tensor(context, MP_DTYPE_FP32, {4, 4});
    const Tensor quantized = make(MP_DTYPE_FP8_E4M3, {4, 4}, MP_SCALING_ROW);
    const Tensor larger = make(MP_DTYPE_FP8_E4M3, {4, 5}, MP_SCALING_ROW);
    MP_FAILS(mp_tensor_quantize(plain, nullptr, plain, nullptr, nullptr, nullptr),
             MP_STATUS_INVALID_ARGUMENT, "mp_tensor_create_quantized");
    MP_FAILS(mp_tensor_quantize(plain, nullptr, larger, nullptr, nullptr, nullptr),
             MP_STATUS_INVALID_SHAPE, "[4, 4]", "[4, 5]");
    MP_FAILS(mp_tensor_quantize(quantized, nullptr, quantized, nullptr, nullptr, nullptr),
             MP_STATUS_INVALID_DTYPE, "already");
    MP_FAILS(mp_tensor_quantize(plain, nullptr, quantized, plain, nullptr, nullptr),
             MP_STATUS_INVALID_DTYPE, "transposed");
    MP_FAILS(mp_tensor_dequantize(plain, nullptr, plain), MP_STATUS_INVALID_ARGUMENT, "no scales");
    MP_FAILS(mp_tensor_cast(quantized, nullptr, plain, nullptr), MP_STATUS_INVALID_DTYPE,
             "mp_tensor_dequantize");
    MP_FAILS(mp_tensor_quantize(nullptr, nullptr, quantized, nullptr, nullptr, nullptr),
             MP_STATUS_NULL_ARGUMENT, "source");
}
