// SPDX-License-Identifier: Apache-2.0
// Products of numbers by codes: the bits of the same product by what the codes are worth, on every backend.
#include "coded.hpp"

using namespace mp_test;
using namespace mp_test::coded;

namespace {

struct Product {
    int32_t dtype_a = MP_DTYPE_FP32;
    bool trans_b = true;
    int64_t m = 17;
    int64_t n = 512;
    int64_t k = 256;
    int32_t scale_dtype = MP_DTYPE_NONE;
    int32_t scale_rows = 0;
    int32_t scale_columns = 0;

    [[nodiscard]] std::vector<int64_t> shape_b() const {
        return trans_b ? std::vector<int64_t>{n, k} : std::vector<int64_t>{k, n};
    }
    [[nodiscard]] mp_gemm_desc desc(int32_t dtype_b) const {
        mp_gemm_desc desc = MP_GEMM_DESC_INIT;
        desc.flags = MP_GEMM_BIAS | (trans_b ? MP_GEMM_TRANS_B : 0U);
        desc.m = m;
        desc.n = n;
        desc.k = k;
        desc.dtype_a = dtype_a;
        desc.dtype_b = dtype_b;
        desc.beta = 2.0;
        return desc;
    }
};

std::vector<float> multiply(mp_context* context, const mp_gemm_desc& desc, mp_tensor* b) {
    const Gemm gemm = make_gemm(context, desc);
    const Tensor a = make_tensor(context, desc.dtype_a, {desc.m, desc.k},
                                 integers(desc.m * desc.k, 5)),
                 bias = make_tensor(context, MP_DTYPE_FP32, {desc.n}, integers(desc.n, 6)),
                 d = make_tensor(context, MP_DTYPE_FP32, {desc.m, desc.n},
                                 integers(desc.m * desc.n, 7));
    EXPECT_TRUE(succeeded(mp_gemm_run(gemm, nullptr, a, b, bias, d, d)));
    return values_of(context, d);
}

void compare(mp_context* context, const Product& product, mp_tensor* codes, int32_t dtype_b) {
    mp_gemm_desc desc = product.desc(dtype_b);
    desc.scale_b_dtype = product.scale_dtype;
    desc.scale_b_rows = product.scale_rows;
    desc.scale_b_columns = product.scale_columns;
    const auto got = multiply(context, desc, codes);
    const auto shape = product.shape_b();
    const Tensor wide = numbers_of(context, codes, product.dtype_a, shape[0], shape[1]);
    const auto expected = multiply(context, product.desc(product.dtype_a), wide);
    EXPECT_EQ(got, expected);
    EXPECT_NE(got, std::vector<float>(got.size(), 0.0F));
}

} // namespace

TEST(GemmCoded, BlocksAreWorthTheirNumbers) {
    for (const char* backend : kHostBackends) {
        const Context context = make_context(2, backend);
        for (const Blocks& type : block_types()) {
            for (const int32_t dtype_a : {MP_DTYPE_FP32, MP_DTYPE_BF16, MP_DTYPE_FP16}) {
                for (const bool trans_b : {true, false}) {
                    SCOPED_TRACE(std::string(backend) + ", " + mp_dtype_name(type.dtype) + " by " +
                                 mp_dtype_name(dtype_a) + (trans_b ? " rows" : " columns"));
                    Product product = {dtype_a, trans_b};
                    const auto shape = product.shape_b();
                    const Tensor codes = make_blocks(context, type, shape[0], shape[1], 3);
                    for (const int64_t m : {1, 8, 9}) { // the host has another way for few rows
                        product.m = m;
                        compare(context, product, codes, type.dtype);
                    }
                }
            }
        }
    }
}

// Of one block, and of more than a tile of the kernels.
TEST(GemmCoded, RowsEndWithAnyBlock) {
    for (const char* backend : kHostBackends) {
        const Context context = make_context(2, backend);
        for (const Blocks& type : block_types()) {
            for (const int64_t k : {32, 288}) {
                if (type.elements != 32) {
                    continue;
                }
                SCOPED_TRACE(std::string(backend) + ", " + mp_dtype_name(type.dtype));
                Product product = {MP_DTYPE_BF16};
                product.n = 67;
                product.k = k;
                const Tensor codes = make_blocks(context, type, product.n, k, 3);
                for (const int64_t m : {1, 9}) {
                    product.m = m;
                    compare(context, product, codes, type.dtype);
                }
            }
        }
    }
}

TEST(GemmCoded, EverySlabIsMultiplied) {
    for (const char* backend : kHostBackends) {
        const Context context = make_context(2, backend);
        for (const bool trans_b : {true, false}) {
            SCOPED_TRACE(std::string(backend) + (trans_b ? " rows" : " columns"));
            Product product;
            product.trans_b = trans_b;
            product.k = 1024;
            product.m = 9;
            product.n = 2304; // two slabs of 1024 columns, and a rest
            const auto shape = product.shape_b();
            compare(context, product, make_blocks(context, block_types()[6], shape[0], shape[1], 3),
                    MP_DTYPE_Q5_K);
        }
    }
}

// DeepSeek's squares of fp8, MXFP4, NVFP4.
TEST(GemmCoded, CodesWithScalesAreWorthTheirNumbers) {
    struct Scaled {
        int32_t dtype, scaling, scale_dtype, rows, columns;
    };
    const Scaled formats[] = {
        {MP_DTYPE_FP8_E4M3, MP_SCALING_BLOCK_128X128, MP_DTYPE_FP32, 128, 128},
        {MP_DTYPE_FP8_E4M3, MP_SCALING_ROW, MP_DTYPE_FP32, 1, 0},
        {MP_DTYPE_FP4_E2M1, MP_SCALING_MX_1X32, MP_DTYPE_E8M0, 1, 32},
        {MP_DTYPE_FP4_E2M1, MP_SCALING_NVFP4, MP_DTYPE_FP8_E4M3, 1, 16},
    };
    for (const char* backend : kHostBackends) {
        const Context context = make_context(2, backend);
        for (const Scaled& format : formats) {
            for (const bool trans_b : {true, false}) {
                SCOPED_TRACE(std::string(backend) + ", " + mp_dtype_name(format.dtype) + " of " +
                             std::to_string(format.columns) + (trans_b ? " rows" : " columns"));
                Product product;
                product.trans_b = trans_b;
                product.scale_dtype = format.scale_dtype;
                product.scale_rows = format.rows;
                product.scale_columns = format.columns;
                mp_quant_desc quant = MP_QUANT_DESC_INIT;
                quant.scaling = format.scaling;
                quant.flags = format.scale_dtype == MP_DTYPE_FP32 ? MP_QUANT_POWER_OF_TWO : 0U;
                auto values = integers(product.n * product.k, 9);
                values[0] = format.scaling == MP_SCALING_NVFP4 ? 2688.0F : 448.0F;
                const Tensor source =
                    make_tensor(context, MP_DTYPE_FP32, product.shape_b(), values);
                const Tensor codes =
                    make_quantized(context, format.dtype, product.shape_b(), &quant);
                ASSERT_TRUE(succeeded(
                    mp_tensor_quantize(source, nullptr, codes, nullptr, nullptr, nullptr)));
                compare(context, product, codes, format.dtype);
            }
        }
    }
}

// code * scale has more bits than bf16.
TEST(GemmCoded, NumbersAreRoundedToTheTypeOfA) {
    const Context context = make_context(1, "reference");
    Product product;
    product.dtype_a = MP_DTYPE_BF16;
    product.scale_dtype = MP_DTYPE_FP32;
    product.scale_rows = 1;
    mp_quant_desc quant = MP_QUANT_DESC_INIT;
    quant.scaling = MP_SCALING_ROW;
    const Tensor source = make_tensor(context, MP_DTYPE_FP32, product.shape_b(),
                                      numbers(static_cast<std::size_t>(product.n * product.k), 9));
    const Tensor codes = make_quantized(context, MP_DTYPE_FP8_E4M3, product.shape_b(), &quant);
    MP_OK(mp_tensor_quantize(source, nullptr, codes, nullptr, nullptr, nullptr));
    compare(context, product, codes, MP_DTYPE_FP8_E4M3);
}

TEST(GemmCoded, WhatCannotBeIsRefused) {
    const Context context = make_context();
    mp_gemm* out = nullptr;
    const auto refuses = [&](const mp_gemm_desc& desc, mp_status status, const char* word) {
        EXPECT_TRUE(fails(mp_gemm_create(context, &desc, &out), status, {word}));
    };
    const mp_gemm_desc good = Product{}.desc(MP_DTYPE_Q4_K);
    mp_gemm_desc desc = good;
    desc.k = 300;
    refuses(desc, MP_STATUS_INVALID_SHAPE, "multiple of its blocks of 256");
    desc = good;
    desc.ldb = desc.k + 256;
    refuses(desc, MP_STATUS_UNSUPPORTED, "one matrix");
    desc = good;
    desc.batch_count = 2;
    refuses(desc, MP_STATUS_UNSUPPORTED, "one matrix");
    desc = good;
    desc.dtype_a = MP_DTYPE_FP8_E4M3;
    refuses(desc, MP_STATUS_INVALID_DTYPE, "dtype_b is q4_k");
    desc = good;
    desc.dtype_a = MP_DTYPE_Q4_K;
    refuses(desc, MP_STATUS_INVALID_DTYPE, "dtype_a is q4_k");
    desc = good;
    desc.dtype_d = MP_DTYPE_Q4_K;
    refuses(desc, MP_STATUS_INVALID_DTYPE, "dtype_d is q4_k");
    desc = good;
    desc.implementation = "none such";
    refuses(desc, MP_STATUS_UNKNOWN_NAME, "none such");
}
