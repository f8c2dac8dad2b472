// SPDX-License-Identifier: Apache-2.0
// Quantized tensors where calls write or read elements: a product into one is a product and a quantization; a copy of one is
// whole; and where codes would be taken for numbers, or would lie under a scale that is not theirs, the call is refused.
#include "support.hpp"

using namespace mp_test;

namespace {

constexpr int64_t kM = 70, kN = 160, kK = 40;

struct Codes {
    int32_t scaling;
    int32_t dtype;
    int32_t rule = 0;
    int32_t margin = 0;
};
constexpr Codes kAll[] = {
    {MP_SCALING_TENSOR, MP_DTYPE_FP8_E4M3},
    {MP_SCALING_TENSOR, MP_DTYPE_FP8_E5M2, MP_SCALE_RULE_CURRENT, 2},
    {MP_SCALING_TENSOR, MP_DTYPE_FP16, MP_SCALE_RULE_MSAMP},
    {MP_SCALING_ROW, MP_DTYPE_FP8_E4M3},
    {MP_SCALING_COLUMN, MP_DTYPE_FP8_E5M2},
    {MP_SCALING_BLOCK_1X128, MP_DTYPE_FP8_E4M3, MP_SCALE_RULE_DEEPSEEK},
    {MP_SCALING_BLOCK_128X1, MP_DTYPE_FP8_E4M3},
    {MP_SCALING_BLOCK_128X128, MP_DTYPE_FP8_E4M3},
    {MP_SCALING_MX_1X32, MP_DTYPE_FP8_E4M3},
    {MP_SCALING_MX_32X1, MP_DTYPE_FP8_E5M2, MP_SCALE_RULE_MX_FLOOR},
    {MP_SCALING_MX_1X32, MP_DTYPE_FP4_E2M1},
    {MP_SCALING_NVFP4, MP_DTYPE_FP4_E2M1},
};

mp_quant_desc quant_of(const Codes& codes) {
    mp_quant_desc quant = MP_QUANT_DESC_INIT;
    quant.scaling = codes.scaling;
    quant.rule = codes.rule;
    quant.margin = codes.margin;
    return quant;
}

mp_gemm_desc product() {
    mp_gemm_desc desc = MP_GEMM_DESC_INIT;
    desc.m = kM;
    desc.n = kN;
    desc.k = kK;
    desc.dtype_a = desc.dtype_b = MP_DTYPE_BF16;
    desc.flags = MP_GEMM_BIAS | MP_GEMM_GELU;
    return desc;
}

void expect_equal(mp_tensor* actual, mp_tensor* expected) {
    EXPECT_EQ(bytes_of(actual), bytes_of(expected));
    EXPECT_EQ(bytes_of(scales_of(actual)), bytes_of(scales_of(expected)));
    EXPECT_EQ(bytes_of(amax_of(actual)), bytes_of(amax_of(expected)));
}

struct QuantizedResult : ::testing::Test {
    Context context = make_context();
    Tensor a = make_tensor(context, MP_DTYPE_BF16, {kM, kK}, numbers(kM* kK, 1));
    Tensor b = make_tensor(context, MP_DTYPE_BF16, {kK, kN}, numbers(kK* kN, 2));
    Tensor bias = make_tensor(context, MP_DTYPE_FP32, {kN}, numbers(kN, 3));
    mp_gemm* raw = nullptr;

    [[nodiscard]] mp_status run(mp_gemm* gemm, mp_tensor* d) {
        return mp_gemm_run(gemm, nullptr, a, b, bias, nullptr, d);
    }
    [[nodiscard]] Tensor make(const Codes& codes) {
        const mp_quant_desc quant = quant_of(codes);
        return make_quantized(context, codes.dtype, {kM, kN}, &quant);
    }
};

} // namespace

TEST_F(QuantizedResult, IsAProductAndAQuantization) {
    const Tensor exact = make_tensor(context, MP_DTYPE_FP32, {kM, kN});
    MP_OK(run(make_gemm(context, product()), exact));
    for (const Codes& codes : kAll) {
        SCOPED_TRACE(testing::Message() << codes.scaling << ' ' << mp_dtype_name(codes.dtype));
        const mp_quant_desc quant = quant_of(codes);
        const Tensor expected = make(codes);
        MP_OK(mp_tensor_quantize(exact, nullptr, expected, nullptr, nullptr, nullptr));
        mp_gemm_desc desc = product();
        desc.dtype_d = codes.dtype;
        desc.quant_d = &quant;
        const Gemm gemm = make_gemm(context, desc);
        const Tensor d = make(codes);
        MP_OK(run(gemm, d));
        expect_equal(d, expected);
        MP_OK(run(gemm, d)); // over what is there
        expect_equal(d, expected);
    }
}

TEST_F(QuantizedResult, OfNothing) {
    const mp_quant_desc quant = MP_QUANT_DESC_INIT;
    mp_gemm_desc desc = product();
    desc.m = 0;
    desc.dtype_d = MP_DTYPE_FP8_E4M3;
    desc.quant_d = &quant;
    const Tensor none = make_tensor(context, MP_DTYPE_BF16, {0, kK});
    const Tensor d = make_quantized(context, MP_DTYPE_FP8_E4M3, {0, kN}, &quant);
    MP_OK(mp_gemm_run(make_gemm(context, desc), nullptr, none, b, bias, nullptr, d));
}

TEST_F(QuantizedResult, WrongPlans) {
    const auto create = [&](auto change) {
        const mp_quant_desc quant = quant_of({MP_SCALING_ROW, MP_DTYPE_FP8_E4M3});
        mp_gemm_desc desc = product();
        desc.dtype_d = MP_DTYPE_FP8_E4M3;
        desc.quant_d = &quant;
        change(desc);
        return mp_gemm_create(context, &desc, &raw);
    };
    MP_FAILS(create([](auto& d) { d.beta = 1.0; }), MP_STATUS_INVALID_ARGUMENT, "quant_d", "beta");
    MP_FAILS(create([](auto& d) { d.batch_count = 2; }), MP_STATUS_INVALID_ARGUMENT, "batch_count");
    MP_FAILS(create([](auto& d) { d.ldd = kN + 1; }), MP_STATUS_INVALID_ARGUMENT, "ldd");
    MP_FAILS(create([](auto& d) { d.dtype_d = MP_DTYPE_BF16; }), MP_STATUS_INVALID_DTYPE, "quant_d",
             "bf16");
    MP_FAILS(create([](auto& d) { d.dtype_d = MP_DTYPE_NONE; }), MP_STATUS_INVALID_DTYPE,
             "dtype_d");
    EXPECT_EQ(raw, nullptr);
}

TEST_F(QuantizedResult, WrongTensors) {
    const Codes rows = {MP_SCALING_ROW, MP_DTYPE_FP8_E4M3};
    const mp_quant_desc quant = quant_of(rows);
    mp_gemm_desc desc = product();
    desc.dtype_d = MP_DTYPE_FP8_E4M3;
    desc.quant_d = &quant;
    const Gemm gemm = make_gemm(context, desc);
    MP_FAILS(run(gemm, make_tensor(context, MP_DTYPE_FP8_E4M3, {kM, kN})), MP_STATUS_INVALID_DTYPE,
             "d is fp8_e4m3,", "quant_d");
    MP_FAILS(run(gemm, make({MP_SCALING_TENSOR, MP_DTYPE_FP8_E4M3})), MP_STATUS_INVALID_DTYPE,
             "one scale", "quant_d");
    MP_FAILS(run(gemm, make({MP_SCALING_ROW, MP_DTYPE_FP8_E4M3, MP_SCALE_RULE_FLOAT64})),
             MP_STATUS_INVALID_DTYPE, "rule");
    MP_FAILS(run(gemm, make_quantized(context, MP_DTYPE_FP8_E4M3, {kN, kM}, &quant)),
             MP_STATUS_INVALID_SHAPE, "[160, 70]", "[70, 160]");
    const Tensor one = make_tensor(context, MP_DTYPE_FP32, {1});
    mp_gemm_args args = MP_GEMM_ARGS_INIT;
    const Tensor d = make(rows);
    args.a = a, args.b = b, args.bias = bias, args.d = d, args.amax_d = one;
    MP_FAILS(mp_gemm_run_scaled(gemm, nullptr, &args), MP_STATUS_INVALID_ARGUMENT, "amax_d",
             "quant_d");
}

// A plan without quant_d takes elements for numbers, and would leave a scale that is not theirs.
TEST_F(QuantizedResult, CodesAreNotTakenForNumbers) {
    mp_gemm_desc desc = product();
    desc.dtype_bias = desc.dtype_d = MP_DTYPE_FP16;
    desc.beta = 1.0;
    const Gemm gemm = make_gemm(context, desc);
    const Codes msamp = {MP_SCALING_TENSOR, MP_DTYPE_FP16, MP_SCALE_RULE_MSAMP};
    const mp_quant_desc quant = quant_of(msamp);
    const Tensor numbers = make_tensor(context, MP_DTYPE_FP16, {kM, kN});
    const Tensor vector = make_tensor(context, MP_DTYPE_FP16, {kN});
    const Tensor codes = make(msamp);
    const Tensor few = make_quantized(context, MP_DTYPE_FP16, {kN}, &quant);
    MP_OK(mp_gemm_run(gemm, nullptr, a, b, vector, numbers, numbers));
    const auto refused = [&](mp_tensor* v, mp_tensor* c, mp_tensor* d, const char* name) {
        MP_FAILS(mp_gemm_run(gemm, nullptr, a, b, v, c, d), MP_STATUS_INVALID_DTYPE, name,
                 "is quantized (fp16 with one scale)");
    };
    refused(few, numbers, numbers, "bias");
    refused(vector, codes, numbers, "c is");
    refused(vector, numbers, codes, "d is");
    for (const Codes& each : kAll) {
        if (each.dtype == MP_DTYPE_FP4_E2M1) {
            continue; // never a plan's own
        }
        mp_gemm_desc plain = product();
        plain.dtype_d = each.dtype;
        MP_FAILS(run(make_gemm(context, plain), make(each)), MP_STATUS_INVALID_DTYPE,
                 "d is quantized", "quant_d");
    }
}

TEST_F(QuantizedResult, ACopyHasTheScales) {
    const Tensor source = make_tensor(context, MP_DTYPE_FP32, {kM, kN}, numbers(kM * kN, 4));
    for (const Codes& codes : kAll) {
        SCOPED_TRACE(testing::Message() << codes.scaling << ' ' << mp_dtype_name(codes.dtype));
        const Tensor from = make(codes);
        MP_OK(mp_tensor_quantize(source, nullptr, from, nullptr, nullptr, nullptr));
        const Tensor to = make(codes);
        MP_OK(mp_tensor_copy(from, nullptr, to));
        expect_equal(to, from);
        for (const Codes& other : kAll) {
            if (other.scaling != codes.scaling || other.dtype != codes.dtype) {
                MP_FAILS(mp_tensor_copy(from, nullptr, make(other)), MP_STATUS_INVALID_DTYPE,
                         "mp_tensor_quantize");
            }
        }
        if (codes.dtype != MP_DTYPE_FP4_E2M1) { // which has no plain tensors
            const Tensor plain = make_tensor(context, codes.dtype, {kM, kN});
            MP_FAILS(mp_tensor_copy(from, nullptr, plain), MP_STATUS_INVALID_DTYPE,
                     "mp_tensor_dequantize");
            MP_FAILS(mp_tensor_copy(plain, nullptr, to), MP_STATUS_INVALID_DTYPE,
                     "mp_tensor_quantize");
        }
        const mp_quant_desc quant = quant_of(codes);
        MP_FAILS(mp_tensor_copy(from, nullptr,
                                make_quantized(context, codes.dtype, {kM / 2, kN * 2}, &quant)),
                 MP_STATUS_INVALID_SHAPE, "same rows");
    }
}
