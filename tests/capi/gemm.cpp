// SPDX-License-Identifier: Apache-2.0
// GEMM through the ABI: every flag against a product in double, and every way of asking wrongly.
#include <array>
#include <cmath>

#include "support.hpp"

using namespace mp_test;

namespace {

struct Case {
    int64_t m, n, k;
    uint32_t flags;
    double alpha, beta;
    int32_t in, out;
};

double gelu(double z) {
    return 0.5 * z * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (z + 0.044715 * z * z * z)));
}

mp_gemm_desc desc_of(const Case& c) {
    mp_gemm_desc desc = MP_GEMM_DESC_INIT;
    desc.m = c.m;
    desc.n = c.n;
    desc.k = c.k;
    desc.flags = c.flags | MP_GEMM_HAS_ALPHA;
    desc.alpha = c.alpha;
    desc.beta = c.beta;
    desc.dtype_a = desc.dtype_b = c.in;
    desc.dtype_d = c.out;
    return desc;
}

// Half a unit in the last place of the output type, relative.
double rounding_of(int32_t dtype) {
    return dtype == MP_DTYPE_FP32 ? 0x1p-24 : dtype == MP_DTYPE_FP16 ? 0x1p-11 : 0x1p-8;
}

void check_case(mp_context* context, const Case& c) {
    const auto size = [](int64_t rows, int64_t columns) {
        return static_cast<std::size_t>(rows * columns);
    };
    const Tensor a = make_tensor(context, c.in, {c.m * c.k}, numbers(size(c.m, c.k), 1));
    const Tensor b = make_tensor(context, c.in, {c.k * c.n}, numbers(size(c.k, c.n), 2));
    const Tensor bias =
        make_tensor(context, MP_DTYPE_FP32, {c.n}, numbers(static_cast<std::size_t>(c.n), 3));
    const Tensor old = make_tensor(context, c.out, {c.m * c.n}, numbers(size(c.m, c.n), 4));
    const Tensor d = make_tensor(context, c.out, {c.m * c.n});
    const Gemm gemm = make_gemm(context, desc_of(c));
    const bool has_bias = (c.flags & MP_GEMM_BIAS) != 0;
    MP_OK(mp_gemm_run(gemm, nullptr, a, b, has_bias ? bias.owned.get() : nullptr,
                      c.beta != 0 ? old.owned.get() : nullptr, d));

    const auto va = values_of(context, a), vb = values_of(context, b), vd = values_of(context, d);
    const auto vbias = values_of(context, bias), vc = values_of(context, old);
    for (int64_t i = 0; i < c.m; ++i) {
        for (int64_t j = 0; j < c.n; ++j) {
            double sum = 0, magnitude = 0;
            for (int64_t l = 0; l < c.k; ++l) {
                const double x = va[static_cast<std::size_t>(
                    (c.flags & MP_GEMM_TRANS_A) ? l * c.m + i : i * c.k + l)];
                const double y = vb[static_cast<std::size_t>(
                    (c.flags & MP_GEMM_TRANS_B) ? j * c.k + l : l * c.n + j)];
                sum += x * y;
                magnitude += std::fabs(x * y);
            }
            const auto at = static_cast<std::size_t>(i * c.n + j);
            double z = c.alpha * sum + c.beta * static_cast<double>(vc[at]);
            z += has_bias ? static_cast<double>(vbias[static_cast<std::size_t>(j)]) : 0.0;
            const double expected = (c.flags & MP_GEMM_GELU) ? gelu(z) : z;
            // k roundings of the sum, a few of the epilogue (gelu' is below 1.13), one of the result
            const double bound =
                (static_cast<double>(c.k) + 8) * 0x1p-24 * (std::fabs(c.alpha) * magnitude + 4) +
                rounding_of(c.out) * (std::fabs(expected) + 1e-4);
            ASSERT_NEAR(static_cast<double>(vd[at]), expected, bound)
                << c.m << "x" << c.n << "x" << c.k << " flags " << c.flags << " at " << i << ","
                << j;
        }
    }
}

} // namespace

TEST(Gemm, EveryFlagAndType) {
    const Context context = make_context();
    for (const int32_t in : {MP_DTYPE_FP32, MP_DTYPE_FP16, MP_DTYPE_BF16}) {
        for (const int32_t out : {MP_DTYPE_FP32, in}) {
            for (uint32_t flags = 0; flags < 16; ++flags) {
                check_case(context, {33, 17, 65, flags, 1.0, 0.0, in, out});
                check_case(context, {16, 32, 48, flags, -0.5, 0.75, in, out});
            }
        }
    }
}

TEST(Gemm, EdgesOfSize) {
    const Context context = make_context();
    for (const int64_t m : {0, 1, 2, 129}) {
        for (const int64_t n : {0, 1, 130}) {
            for (const int64_t k : {0, 1, 257}) {
                check_case(context,
                           {m, n, k, MP_GEMM_BIAS, 1.0, 0.0, MP_DTYPE_FP32, MP_DTYPE_FP32});
                check_case(context,
                           {m, n, k, MP_GEMM_TRANS_B, 2.0, 1.0, MP_DTYPE_BF16, MP_DTYPE_FP32});
            }
        }
    }
}

TEST(Gemm, SizesThatEndOnednnAreNotPlannedByIt) {
    const Context context = make_context(1);
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{int64_t{1} << 34, 5, 2},
                                  {3, 5, int64_t{1} << 32},
                                  {2, int64_t{1} << 33, 2}}) {
        mp_gemm_desc desc = MP_GEMM_DESC_INIT;
        desc.m = m;
        desc.n = n;
        desc.k = k;
        desc.dtype_a = desc.dtype_b = MP_DTYPE_FP32;
        mp_gemm* raw = nullptr;
        const mp_status status = mp_gemm_create(context, &desc, &raw);
        EXPECT_TRUE(status == MP_STATUS_OK || status == MP_STATUS_UNSUPPORTED ||
                    status == MP_STATUS_OUT_OF_MEMORY)
            << mp_last_error_message();
        const Gemm gemm(raw);
    }
}

TEST(Gemm, AccumulatesInPlaceInBatchesWithLeadingDimensions) {
    const Context context = make_context();
    mp_gemm_desc desc = MP_GEMM_DESC_INIT;
    desc.m = 3;
    desc.n = 4;
    desc.k = 5;
    desc.lda = 7;
    desc.ldb = 6;
    desc.ldc = desc.ldd = 9;
    desc.batch_count = 3;
    desc.batch_stride_a = 3 * 7 + 2;
    desc.batch_stride_c = desc.batch_stride_d = 3 * 9 + 1;
    desc.batch_stride_b = 5 * 6;
    desc.beta = 1.0;
    desc.dtype_a = desc.dtype_b = MP_DTYPE_FP32;
    const std::vector<float> a = numbers(100, 1), b = numbers(100, 2), c = numbers(100, 3);
    const Tensor ta = make_tensor(context, MP_DTYPE_FP32, {100}, a);
    const Tensor tb = make_tensor(context, MP_DTYPE_FP32, {100}, b);
    const Tensor td = make_tensor(context, MP_DTYPE_FP32, {100}, c);
    const Gemm gemm = make_gemm(context, desc);
    MP_OK(mp_gemm_run(gemm, nullptr, ta, tb, nullptr, td, td));
    std::vector<float> expected = c;
    for (std::size_t batch = 0; batch < 3; ++batch) {
        for (std::size_t i = 0; i < 3; ++i) {
            for (std::size_t j = 0; j < 4; ++j) {
                double sum = 0;
                for (std::size_t l = 0; l < 5; ++l) {
                    sum += static_cast<double>(a[batch * 23 + i * 7 + l]) *
                           static_cast<double>(b[batch * 30 + l * 6 + j]);
                }
                float& target = expected[batch * 28 + i * 9 + j];
                target = static_cast<float>(static_cast<double>(target) + sum);
            }
        }
    }
    const std::vector<float> got = values_of(context, td);
    for (std::size_t i = 0; i < 100; ++i) {
        EXPECT_NEAR(got[i], expected[i], 2e-6) << i; // elements between the rows stay as they were
    }
}

TEST(Gemm, SameBitsEachTime) {
    const Context context = make_context();
    const Case c = {200, 300, 400, 0, 1.0, 0.0, MP_DTYPE_BF16, MP_DTYPE_FP32};
    const Tensor a = make_tensor(context, c.in, {c.m * c.k}, numbers(80000, 1));
    const Tensor b = make_tensor(context, c.in, {c.k * c.n}, numbers(120000, 2));
    const Tensor d = make_tensor(context, c.out, {c.m * c.n});
    const Gemm gemm = make_gemm(context, desc_of(c));
    MP_OK(mp_gemm_run(gemm, nullptr, a, b, nullptr, nullptr, d));
    const auto first = bytes_of(d);
    for (int i = 0; i < 3; ++i) {
        MP_OK(mp_gemm_run(gemm, nullptr, a, b, nullptr, nullptr, d));
        ASSERT_EQ(bytes_of(d), first);
    }
}

TEST(Gemm, SaysWhatWasChosen) {
    const Context context = make_context();
    const Gemm gemm =
        make_gemm(context, desc_of({64, 64, 64, 0, 1.0, 0.0, MP_DTYPE_BF16, MP_DTYPE_FP32}));
    char text[512] = {};
    MP_OK(mp_gemm_describe(gemm, text, sizeof text, nullptr));
    EXPECT_GT(std::strlen(text), 3U);
}

TEST(Gemm, AnImplementationByItsName) {
    const Context context = make_context();
    mp_gemm_desc desc = desc_of({64, 64, 64, 0, 1.0, 0.0, MP_DTYPE_FP32, MP_DTYPE_FP32});
    desc.implementation = "simple"; // the last of the host's
    const Gemm gemm = make_gemm(context, desc);
    char text[512] = {};
    MP_OK(mp_gemm_describe(gemm, text, sizeof text, nullptr));
    EXPECT_STREQ(text, "simple");
    mp_gemm* none = nullptr;
    desc.implementation = "cutlass";
    MP_FAILS(mp_gemm_create(context, &desc, &none), MP_STATUS_UNKNOWN_NAME, "'cutlass'", "simple");
    desc.implementation = "blocked_bf16"; // not asked in vain: its reason is the message
    MP_FAILS(mp_gemm_create(context, &desc, &none), MP_STATUS_UNSUPPORTED, "blocked_bf16: ");
    EXPECT_EQ(none, nullptr);
}

TEST(Gemm, WrongDescriptors) {
    const Context context = make_context();
    mp_gemm* gemm = nullptr;
    const auto create = [&](auto change) {
        mp_gemm_desc desc = desc_of({4, 5, 6, 0, 1.0, 0.0, MP_DTYPE_FP32, MP_DTYPE_FP32});
        change(desc);
        return mp_gemm_create(context, &desc, &gemm);
    };
    MP_FAILS(create([](auto& d) { d.m = -1; }), MP_STATUS_INVALID_SHAPE, "m", "-1");
    MP_FAILS(create([](auto& d) { d.lda = 5; }), MP_STATUS_INVALID_SHAPE, "lda", "5", "6");
    MP_FAILS(create([](auto& d) { d.dtype_b = MP_DTYPE_BF16; }), MP_STATUS_INVALID_DTYPE, "fp32",
             "bf16");
    MP_FAILS(create([](auto& d) { d.dtype_a = d.dtype_b = MP_DTYPE_INT8; }),
             MP_STATUS_INVALID_DTYPE, "int8");
    MP_FAILS(create([](auto& d) { d.dtype_a = 0; }), MP_STATUS_INVALID_DTYPE, "dtype_a");
    MP_FAILS(create([](auto& d) { d.dtype_d = MP_DTYPE_INT32; }), MP_STATUS_INVALID_DTYPE,
             "dtype_d");
    MP_FAILS(create([](auto& d) { d.dtype_c = MP_DTYPE_FP16; }), MP_STATUS_INVALID_DTYPE, "fp16");
    MP_FAILS(create([](auto& d) { d.flags |= 1u << 20; }), MP_STATUS_INVALID_ARGUMENT, "flags");
    MP_FAILS(create([](auto& d) { d.alpha = INFINITY; }), MP_STATUS_INVALID_ARGUMENT, "alpha");
    MP_FAILS(create([](auto& d) { d.m = d.n = d.k = int64_t{1} << 40; }), MP_STATUS_INVALID_SHAPE,
             "larger");
    MP_FAILS(create([](auto& d) { d.batch_count = 3, d.batch_stride_d = 2; }),
             MP_STATUS_INVALID_SHAPE, "overlap");
    MP_FAILS(create([](auto& d) { d.m = INT64_MAX; }), MP_STATUS_INVALID_SHAPE, "m");
    EXPECT_EQ(gemm, nullptr);
}

// Alpha 0 over a NaN in row 1 of A, by one implementation; false where it cannot.
bool multiplies_no_number(const Context& context, const char* name, int64_t size, int32_t dtype) {
    const auto n = static_cast<std::size_t>(size);
    std::vector<float> values(n * n, 1.0F);
    values[n] = NAN;
    mp_gemm_desc desc =
        desc_of({size, size, size, MP_GEMM_HAS_ALPHA, 0.0, 0.0, dtype, MP_DTYPE_FP32});
    desc.implementation = name;
    mp_gemm* made = nullptr;
    if (mp_gemm_create(context, &desc, &made) < 0) {
        return false;
    }
    const Gemm gemm(made);
    const Tensor a = make_tensor(context, dtype, {size, size}, values);
    const Tensor b = make_tensor(context, dtype, {size, size}, std::vector<float>(n * n, 1.0F));
    const Tensor d = make_tensor(context, MP_DTYPE_FP32, {size, size});
    EXPECT_TRUE(succeeded(mp_gemm_run(gemm, nullptr, a, b, nullptr, nullptr, d)));
    const std::vector<float> result = values_of(context, d);
    for (std::size_t i = 0; i < result.size(); ++i) {
        EXPECT_EQ(std::isnan(result[i]), i / n == 1) << name << " " << i;
    }
    return true;
}

// No number makes the product pass over its operands.
TEST(Gemm, AlphaZeroMultipliesWhatIsNoNumber) {
    const Context host = make_context();
    const Context reference = make_context(1, "reference");
    for (const int64_t size : {int64_t{3}, int64_t{64}}) {
        for (const int32_t dtype : {MP_DTYPE_FP32, MP_DTYPE_BF16}) {
            EXPECT_TRUE(multiplies_no_number(reference, nullptr, size, dtype));
            EXPECT_TRUE(multiplies_no_number(host, "simple", size, dtype));
            for (const char* name :
                 {"onednn_fp32", "onednn_bf16", "blocked_fp32", "blocked_bf16", "widen_fp32"}) {
                multiplies_no_number(host, name, size, dtype);
            }
        }
    }
}

TEST(Gemm, WrongOperands) {
    const Context context = make_context();
    const Gemm gemm = make_gemm(
        context, desc_of({4, 5, 6, MP_GEMM_BIAS, 1.0, 1.0, MP_DTYPE_FP32, MP_DTYPE_FP32}));
    const Tensor a = make_tensor(context, MP_DTYPE_FP32, {4, 6});
    const Tensor b = make_tensor(context, MP_DTYPE_FP32, {6, 5});
    const Tensor bias = make_tensor(context, MP_DTYPE_FP32, {5});
    const Tensor d = make_tensor(context, MP_DTYPE_FP32, {4, 5});
    const Tensor narrow = make_tensor(context, MP_DTYPE_BF16, {4, 6});
    const Tensor small = make_tensor(context, MP_DTYPE_FP32, {4, 5});
    MP_OK(mp_gemm_run(gemm, nullptr, a, b, bias, d, d));
    MP_FAILS(mp_gemm_run(gemm, nullptr, narrow, b, bias, d, d), MP_STATUS_INVALID_DTYPE,
             "a is bf16", "fp32");
    MP_FAILS(mp_gemm_run(gemm, nullptr, small, b, bias, d, d), MP_STATUS_INVALID_SHAPE,
             "a is [4, 5]", "24");
    MP_FAILS(mp_gemm_run(gemm, nullptr, a, b, nullptr, d, d), MP_STATUS_INVALID_ARGUMENT, "bias");
    MP_FAILS(mp_gemm_run(gemm, nullptr, a, b, bias, nullptr, d), MP_STATUS_NULL_ARGUMENT, "c");
    MP_FAILS(mp_gemm_run(gemm, nullptr, d, b, bias, d, d), MP_STATUS_INVALID_SHAPE, "a is");
    MP_FAILS(mp_gemm_run(gemm, nullptr, a, b, bias, b, b), MP_STATUS_INVALID_ARGUMENT,
             "d overlaps b");
    const Context other = make_context();
    const Tensor elsewhere = make_tensor(other, MP_DTYPE_FP32, {4, 6});
    MP_FAILS(mp_gemm_run(gemm, nullptr, elsewhere, b, bias, d, d), MP_STATUS_INVALID_ARGUMENT,
             "device");
}
