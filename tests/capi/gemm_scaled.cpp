// SPDX-License-Identifier: Apache-2.0
// Products of codes with scales through the ABI, and every way of asking wrongly. What every backend computes is
// tested in tests/backends; here it is small enough to be exact.
#include <cmath>
#include <cstddef>

#include "support.hpp"

using namespace mp_test;

namespace {

constexpr int64_t kM = 3, kN = 4, kK = 160;

mp_gemm_desc scaled_desc() {
    mp_gemm_desc desc = MP_GEMM_DESC_INIT;
    desc.m = kM;
    desc.n = kN;
    desc.k = kK;
    desc.dtype_a = MP_DTYPE_FP8_E4M3;
    desc.dtype_b = MP_DTYPE_FP8_E5M2;
    desc.scale_a_dtype = MP_DTYPE_FP32; // 1 x 128
    desc.scale_a_rows = 1;
    desc.scale_a_columns = 128;
    desc.scale_b_dtype = MP_DTYPE_E8M0; // 32 x 1
    desc.scale_b_rows = 32;
    desc.scale_b_columns = 1;
    return desc;
}

std::vector<float> small_integers(std::size_t count, uint64_t seed) {
    std::vector<float> values = numbers(count, seed);
    for (float& value : values) {
        value = std::floor(value * 4.0F);
    }
    return values;
}

// The operands of scaled_desc().
struct Operands {
    explicit Operands(mp_context* context, int32_t dtype_d = MP_DTYPE_FP32)
        : a(make_tensor(context, MP_DTYPE_FP8_E4M3, {kM, kK}, small_integers(kM * kK, 1))),
          b(make_tensor(context, MP_DTYPE_FP8_E5M2, {kK, kN}, small_integers(kK * kN, 2))),
          d(make_tensor(context, dtype_d, {kM, kN})),
          scale_a(make_tensor(context, MP_DTYPE_FP32, {kM, 2}, {1, 2, 0.5F, 1, 4, 0.25F})),
          scale_b(make_tensor(context, MP_DTYPE_E8M0, {5, kN})) {
        std::vector<unsigned char> bytes(5 * kN);
        for (std::size_t i = 0; i < bytes.size(); ++i) {
            bytes[i] = static_cast<unsigned char>(126 + i % 3);
        }
        EXPECT_TRUE(succeeded(mp_tensor_write(scale_b, nullptr, bytes.data(), bytes.size())));
    }
    [[nodiscard]] mp_gemm_args args() const {
        mp_gemm_args all = MP_GEMM_ARGS_INIT;
        all.a = a;
        all.b = b;
        all.d = d;
        all.scale_a = scale_a;
        all.scale_b = scale_b;
        return all;
    }
    // Exact in double, and in fp32.
    [[nodiscard]] std::vector<float> expected(mp_context* context) const {
        const auto va = values_of(context, a), vb = values_of(context, b),
                   sa = values_of(context, scale_a);
        const auto sb = bytes_of(scale_b);
        std::vector<float> values;
        for (std::size_t i = 0; i < kM; ++i) {
            for (std::size_t j = 0; j < kN; ++j) {
                double sum = 0;
                for (std::size_t l = 0; l < kK; ++l) {
                    sum += static_cast<double>(va[i * kK + l]) *
                           static_cast<double>(vb[l * kN + j]) *
                           static_cast<double>(sa[i * 2 + l / 128]) *
                           std::ldexp(1.0, sb[l / 32 * kN + j] - 127);
                }
                values.push_back(static_cast<float>(sum));
            }
        }
        return values;
    }

    Tensor a, b, d, scale_a, scale_b;
};

} // namespace

TEST(GemmScaled, MultipliesCodesByTheirScales) {
    const Context context = make_context();
    const Operands x(context);
    for (const uint32_t flags : {0U, MP_GEMM_POWER_OF_TWO_SCALES, MP_GEMM_FAST_ACCUMULATION}) {
        mp_gemm_desc desc = scaled_desc();
        desc.flags = flags;
        const Gemm gemm = make_gemm(context, desc);
        const mp_gemm_args args = x.args();
        MP_OK(mp_gemm_run_scaled(gemm, nullptr, &args));
        EXPECT_EQ(values_of(context, x.d), x.expected(context));
    }
}

TEST(GemmScaled, WritesCodesAndTheirAmax) {
    const Context context = make_context();
    const Operands x(context, MP_DTYPE_FP8_E5M2);
    mp_gemm_desc desc = scaled_desc();
    desc.dtype_d = MP_DTYPE_FP8_E5M2;
    const Gemm gemm = make_gemm(context, desc);
    const Tensor multiply = make_tensor(context, MP_DTYPE_FP32, {1}, {0.25F});
    const Tensor amax = make_tensor(context, MP_DTYPE_FP32, {1}, {0.5F});
    mp_gemm_args args = x.args();
    args.multiply_d = multiply;
    args.amax_d = amax;
    MP_OK(mp_gemm_run_scaled(gemm, nullptr, &args));
    float largest = 0;
    std::vector<float> scaled;
    for (const float value : x.expected(context)) {
        largest = std::max(largest, std::fabs(value));
        scaled.push_back(value * 0.25F);
    }
    EXPECT_EQ(values_of(context, amax), std::vector<float>{largest});
    const Tensor codes = make_tensor(context, MP_DTYPE_FP8_E5M2, {kM, kN}, scaled);
    EXPECT_EQ(bytes_of(x.d), bytes_of(codes));
}

// With the scales it has beside its codes, and with no others.
TEST(GemmScaled, TakesTheScalesOfAQuantizedTensor) {
    const Context context = make_context();
    const Operands x(context);
    mp_quant_desc quant = MP_QUANT_DESC_INIT;
    quant.scaling = MP_SCALING_BLOCK_1X128;
    const Tensor a = make_quantized(context, MP_DTYPE_FP8_E4M3, {kM, kK}, &quant);
    const Tensor values = make_tensor(context, MP_DTYPE_FP32, {kM, kK}, numbers(kM * kK, 7));
    MP_OK(mp_tensor_quantize(values, nullptr, a, nullptr, nullptr, nullptr));
    const Tensor scales = scales_of(a);
    const Gemm gemm = make_gemm(context, scaled_desc());
    mp_gemm_args args = x.args();
    args.a = a;
    args.scale_a = nullptr;
    MP_OK(mp_gemm_run_scaled(gemm, nullptr, &args));
    const auto own = bytes_of(x.d);
    args.scale_a = scales;
    MP_OK(mp_gemm_run_scaled(gemm, nullptr, &args));
    EXPECT_EQ(bytes_of(x.d), own);

    mp_gemm_desc other = scaled_desc();
    other.scale_a_columns = 32;
    const Gemm wrong = make_gemm(context, other);
    args.scale_a = nullptr;
    MP_FAILS(mp_gemm_run_scaled(wrong, nullptr, &args), MP_STATUS_INVALID_ARGUMENT, "scale_a",
             "1x128", "1 x 32");
    other.scale_a_dtype = other.scale_a_rows = other.scale_a_columns = 0;
    const Gemm bare = make_gemm(context, other);
    MP_FAILS(mp_gemm_run_scaled(bare, nullptr, &args), MP_STATUS_INVALID_ARGUMENT, "scale_a",
             "quantized");
}

TEST(GemmScaled, BareCodesAreTheirValues) {
    const Context context = make_context();
    mp_gemm_desc desc = MP_GEMM_DESC_INIT;
    desc.m = desc.n = 1;
    desc.k = 2;
    desc.dtype_a = desc.dtype_b = MP_DTYPE_FP8_E4M3;
    const Gemm gemm = make_gemm(context, desc);
    const Tensor a = make_tensor(context, MP_DTYPE_FP8_E4M3, {2}, {448.0F, 0x1p-9F});
    const Tensor d = make_tensor(context, MP_DTYPE_FP32, {1});
    MP_OK(mp_gemm_run(gemm, nullptr, a, a, nullptr, nullptr, d));
    EXPECT_EQ(values_of(context, d), std::vector<float>{200704.0F + 0x1p-18F});
}

// A caller from before there were scales.
TEST(GemmScaled, AShorterDescriptorHasNone) {
    const Context context = make_context();
    mp_gemm_desc desc = scaled_desc();
    desc.struct_size = offsetof(mp_gemm_desc, scale_a_dtype);
    desc.scale_a_dtype = -1; // not the caller's to set
    const Gemm gemm = make_gemm(context, desc);
    const Operands x(context);
    MP_OK(mp_gemm_run(gemm, nullptr, x.a, x.b, nullptr, nullptr, x.d));
}

TEST(GemmScaled, WrongDescriptors) {
    const Context context = make_context();
    mp_gemm* gemm = nullptr;
    const auto create = [&](auto change) {
        mp_gemm_desc desc = scaled_desc();
        change(desc);
        return mp_gemm_create(context, &desc, &gemm);
    };
    MP_FAILS(create([](auto& d) { d.dtype_b = MP_DTYPE_BF16; }), MP_STATUS_INVALID_DTYPE,
             "A is fp8_e4m3 but B is bf16", "both be fp8");
    MP_FAILS(create([](auto& d) { d.scale_a_dtype = MP_DTYPE_FP16; }), MP_STATUS_INVALID_DTYPE,
             "scales of A are fp16", "fp32 or e8m0");
    MP_FAILS(create([](auto& d) { d.scale_b_rows = -1; }), MP_STATUS_INVALID_SHAPE, "scales of B",
             "-1 x 1", "at least 0");
    MP_FAILS(create([](auto& d) { d.dtype_a = d.dtype_b = MP_DTYPE_BF16; }),
             MP_STATUS_INVALID_DTYPE, "A is bf16", "fp4 codes");
    MP_FAILS(create([](auto& d) { d.dtype_a = d.dtype_b = MP_DTYPE_FP16; }),
             MP_STATUS_INVALID_DTYPE, "A is fp16", "whole tensor");
    MP_FAILS(create([](auto& d) { d.batch_count = 2; }), MP_STATUS_UNSUPPORTED,
             "A has scales of blocks", "batch_count is 2");
    MP_FAILS(create([](auto& d) { d.lda = kK + 16; }), MP_STATUS_UNSUPPORTED, "176", "160");
    MP_FAILS(create([](auto& d) { d.scale_b_rows = 48; }), MP_STATUS_UNSUPPORTED, "after 128",
             "after 48", "multiple");
    MP_FAILS(create([](auto& d) { d.scale_b_dtype = 0; }), MP_STATUS_INVALID_ARGUMENT,
             "scale_b_dtype", "32 x 1");
    MP_FAILS(create([](auto& d) {
                 d.dtype_d = MP_DTYPE_FP8_E4M3;
                 d.beta = 1.0;
             }),
             MP_STATUS_INVALID_ARGUMENT, "D is fp8_e4m3", "beta");
    EXPECT_EQ(gemm, nullptr);
}

TEST(GemmScaled, WrongOperands) {
    const Context context = make_context();
    const Gemm gemm = make_gemm(context, scaled_desc());
    const Operands x(context);
    const auto run = [&](auto change) {
        mp_gemm_args args = x.args();
        change(args);
        return mp_gemm_run_scaled(gemm, nullptr, &args);
    };
    MP_OK(run([](auto&) {}));
    MP_FAILS(mp_gemm_run(gemm, nullptr, x.a, x.b, nullptr, nullptr, x.d), MP_STATUS_NULL_ARGUMENT,
             "scale_a is NULL", "6", "mp_gemm_run_scaled");
    MP_FAILS(run([&](auto& args) { args.scale_b = x.scale_a; }), MP_STATUS_INVALID_DTYPE,
             "scale_b is fp32", "e8m0");
    const Tensor few = make_tensor(context, MP_DTYPE_FP32, {5});
    MP_FAILS(run([&](auto& args) { args.scale_a = few; }), MP_STATUS_INVALID_SHAPE,
             "scale_a is [5]", "6");
    MP_FAILS(run([&](auto& args) { args.scale_a = x.d; }), MP_STATUS_INVALID_ARGUMENT,
             "d overlaps scale_a");
    MP_FAILS(run([&](auto& args) { args.amax_d = few; }), MP_STATUS_INVALID_ARGUMENT, "amax_d",
             "D is fp32");
    MP_FAILS(run([&](auto& args) { args.multiply_d = few; }), MP_STATUS_INVALID_ARGUMENT,
             "multiply_d");
    MP_FAILS(run([&](auto& args) { args.struct_size = 0; }), MP_STATUS_INVALID_ARGUMENT,
             "struct_size");
    MP_FAILS(run([&](auto& args) { args.reserved = 1; }), MP_STATUS_INVALID_ARGUMENT, "reserved");
    MP_FAILS(mp_gemm_run_scaled(gemm, nullptr, nullptr), MP_STATUS_NULL_ARGUMENT, "args");
    mp_gemm_desc plain = scaled_desc();
    plain.scale_a_dtype = plain.scale_a_rows = plain.scale_a_columns = 0;
    const Gemm half = make_gemm(context, plain);
    const mp_gemm_args args = x.args();
    MP_FAILS(mp_gemm_run_scaled(half, nullptr, &args), MP_STATUS_INVALID_ARGUMENT,
             "scale_a is given but the plan has none");
}
