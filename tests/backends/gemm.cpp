// SPDX-License-Identifier: Apache-2.0
// gemm on every backend. The order of the sums is free, so results are compared in two ways: with
// operands whose sums are exact in any order, bit for bit; otherwise within the bound of an fp32 sum,
// |error| <= k u sum |a| |b| with u = 2^-24 (Higham, "Accuracy and stability of numerical algorithms",
// section 3.1), plus one u for each later operation.
#include <cmath>
#include <memory>
#include <utility>

#include "harness.hpp"

namespace mp::test {
namespace {

struct GemmCase {
    GemmDesc desc{};
    HostArray a, b, bias, c;
    bool c_is_d = false;
    int64_t offset = 0;
};

// What the case should give: in double, the value before the last rounding, and how far from it an
// fp32 sum may be.
struct Expected {
    double value = 0.0;
    double bound = 0.0;
};

struct Shape {
    int64_t m, n, k;
};

// Rows and columns of a matrix as stored.
std::pair<int64_t, int64_t> stored(bool trans, int64_t rows, int64_t columns) {
    return trans ? std::pair{columns, rows} : std::pair{rows, columns};
}

int64_t elements(int64_t rows, int64_t columns, int64_t ld) {
    return rows == 0 || columns == 0 ? 0 : (rows - 1) * ld + columns;
}

struct Options {
    Shape shape{};
    DType in = DType::fp32;
    DType out = DType::fp32;
    DType bias = DType::none;
    bool trans_a = false;
    bool trans_b = false;
    bool gelu = false;
    float alpha = 1.0F;
    float beta = 0.0F;
    int64_t pad = 0;
    int64_t batch = 1;
    Content content = Content::normal;
};

GemmCase make_case(const Options& o) {
    GemmCase c;
    GemmDesc& d = c.desc;
    d.kind = OpKind::gemm;
    d.m = o.shape.m;
    d.n = o.shape.n;
    d.k = o.shape.k;
    const auto [a_rows, a_columns] = stored(o.trans_a, d.m, d.k);
    const auto [b_rows, b_columns] = stored(o.trans_b, d.k, d.n);
    d.lda = a_columns + o.pad;
    d.ldb = b_columns + o.pad;
    d.ldc = d.ldd = d.n + o.pad;
    d.batch_count = o.batch;
    d.batch_stride_a = a_rows * d.lda;
    d.batch_stride_b = b_rows * d.ldb;
    d.batch_stride_c = d.batch_stride_d = d.m * d.ldd;
    d.alpha = o.alpha;
    d.beta = o.beta;
    d.dtype_a = d.dtype_b = o.in;
    d.dtype_d = o.out;
    d.dtype_bias = o.bias;
    d.trans_a = o.trans_a;
    d.trans_b = o.trans_b;
    d.gelu = o.gelu;
    const int64_t more = o.batch - 1;
    c.a = make_array(o.in, more * d.batch_stride_a + elements(a_rows, a_columns, d.lda), o.content,
                     41);
    c.b = make_array(o.in, more * d.batch_stride_b + elements(b_rows, b_columns, d.ldb), o.content,
                     42);
    c.c = make_array(o.out, more * d.batch_stride_d + elements(d.m, d.n, d.ldd), o.content, 43);
    if (o.bias != DType::none) {
        c.bias = make_array(o.bias, d.n, o.content, 44);
    }
    return c;
}

// The whole array D, with what is between the rows; D starts as a copy of C.
bool gemm(TestDevice& on, const Candidate& candidate, const GemmCase& c, HostArray& result) {
    if (!supports(on, candidate, c.desc)) {
        return false;
    }
    const DeviceArray a(on, c.a, c.offset);
    const DeviceArray b(on, c.b, c.offset);
    const DeviceArray other_c(on, c.c, c.offset);
    DeviceArray d(on, c.c, c.offset);
    std::unique_ptr<DeviceArray> bias;
    if (c.desc.dtype_bias != DType::none) {
        bias = std::make_unique<DeviceArray>(on, c.bias, c.offset);
    }
    GemmBuffers buffers;
    buffers.a = a.data();
    buffers.b = b.data();
    buffers.bias = bias != nullptr ? bias->data() : nullptr;
    buffers.c = c.desc.beta == 0.0F ? nullptr : (c.c_is_d ? d.data() : other_c.data());
    buffers.d = d.data();
    Plan* plan = nullptr;
    check(candidate.prepare(on.device(), c.desc, &plan));
    const std::unique_ptr<Plan> owner(plan);
    check(candidate.run_plan(on.device(), on.queue(), *plan, buffers));
    result = d.download();
    return true;
}

double gelu(double x) {
    return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

Expected expect_element(const GemmCase& c, int64_t batch, int64_t row, int64_t column) {
    const GemmDesc& d = c.desc;
    double sum = 0.0;
    double magnitude = 0.0;
    for (int64_t k = 0; k < d.k; ++k) {
        const int64_t in_a = d.trans_a ? k * d.lda + row : row * d.lda + k;
        const int64_t in_b = d.trans_b ? column * d.ldb + k : k * d.ldb + column;
        const double product = static_cast<double>(c.a.get(batch * d.batch_stride_a + in_a)) *
                               static_cast<double>(c.b.get(batch * d.batch_stride_b + in_b));
        sum += product;
        magnitude += std::abs(product);
    }
    constexpr double kU = 0x1p-24;
    Expected expected;
    expected.value = static_cast<double>(d.alpha) * sum;
    expected.bound = static_cast<double>(d.k) * kU * std::abs(static_cast<double>(d.alpha)) *
                     magnitude;
    double terms = std::abs(static_cast<double>(d.alpha)) * magnitude;
    if (d.beta != 0.0F) {
        const double term = static_cast<double>(d.beta) *
                            static_cast<double>(c.c.get(batch * d.batch_stride_c +
                                                        row * d.ldc + column));
        expected.value += term;
        terms += std::abs(term);
    }
    if (d.dtype_bias != DType::none) {
        const double term = static_cast<double>(c.bias.get(column));
        expected.value += term;
        terms += std::abs(term);
    }
    // alpha, beta, the two additions: each rounds something not larger than all terms together.
    expected.bound += 4.0 * kU * terms;
    if (d.gelu) {
        // The slope of GELU is at most 1.13. Evaluated in fp32, the factor 1 + tanh(...) has an
        // absolute error of some u: 5 in the argument times the slope of tanh times argument
        // (at most 0.45), 1 in tanh, 1 in the sum; the two products add 2.
        const double z = expected.value;
        expected.value = gelu(z);
        expected.bound = 1.13 * expected.bound + 4.0 * kU * std::abs(z);
    }
    return expected;
}

// Half a unit in the last place of the result's type, as a fraction; and half its smallest number.
std::pair<double, double> rounding(DType dtype) {
    switch (dtype) {
    case DType::fp16:
        return {0x1p-11, 0x1p-25};
    case DType::bf16:
        return {0x1p-8, 0x1p-134};
    default:
        return {0x1p-24, 0x1p-150};
    }
}

::testing::AssertionResult within_bound(const GemmCase& c, const HostArray& result) {
    const GemmDesc& d = c.desc;
    const auto [unit, smallest] = rounding(d.dtype_d);
    for (int64_t batch = 0; batch < d.batch_count; ++batch) {
        for (int64_t row = 0; row < d.m; ++row) {
            for (int64_t column = 0; column < d.n; ++column) {
                const Expected e = expect_element(c, batch, row, column);
                const double got = static_cast<double>(
                    result.get(batch * d.batch_stride_d + row * d.ldd + column));
                const double bound =
                    e.bound + unit * (std::abs(e.value) + e.bound) + smallest;
                if (!(std::abs(got - e.value) <= bound)) {
                    return ::testing::AssertionFailure()
                           << "batch " << batch << " [" << row << ", " << column << "]: " << got
                           << " instead of " << e.value << " +- " << bound;
                }
            }
        }
    }
    return ::testing::AssertionSuccess();
}

// What lies between the rows of D (and in the padding after the last one) is the caller's.
::testing::AssertionResult padding_untouched(const GemmCase& c, const HostArray& result) {
    const GemmDesc& d = c.desc;
    for (int64_t i = 0; i < result.count; ++i) {
        const int64_t in_matrix = d.batch_stride_d == 0 ? i : i % d.batch_stride_d;
        if (in_matrix % d.ldd >= d.n && result.code(i) != c.c.code(i)) {
            return ::testing::AssertionFailure() << "written between rows, at " << i;
        }
    }
    return ::testing::AssertionSuccess();
}

std::string describe(const Options& o) {
    return std::string(dtype_name(o.in)) + " to " + dtype_name(o.out) + ", " +
           std::to_string(o.shape.m) + " x " + std::to_string(o.shape.n) + " x " +
           std::to_string(o.shape.k) + (o.trans_a ? ", A^T" : "") + (o.trans_b ? ", B^T" : "") +
           ", alpha " + std::to_string(o.alpha) + ", beta " + std::to_string(o.beta) + ", bias " +
           dtype_name(o.bias) + (o.gelu ? ", gelu" : "") + ", pad " + std::to_string(o.pad) +
           ", batch " + std::to_string(o.batch);
}

class Gemm : public BackendTest {
  protected:
    // With every candidate; `exact` compares with the reference bit for bit.
    void check_case(const Options& o, bool exact = false, bool c_is_d = false,
                    int64_t offset = 0) {
        SCOPED_TRACE(describe(o));
        GemmCase c = make_case(o);
        c.c_is_d = c_is_d;
        c.offset = offset;
        HostArray expected;
        if (exact) {
            ASSERT_TRUE(
                gemm(reference_device(), reference_candidate(OpKind::gemm), c, expected));
        }
        const int32_t supporting =
            for_each_candidate(device(), OpKind::gemm, [&](const Candidate& candidate) {
                HostArray result;
                if (!gemm(device(), candidate, c, result)) {
                    return false;
                }
                if (exact) {
                    EXPECT_TRUE(same_bits(expected, result, NanRule::any_nan));
                } else {
                    EXPECT_TRUE(within_bound(c, result));
                }
                EXPECT_TRUE(padding_untouched(c, result));
                return true;
            });
        EXPECT_GT(supporting, 0);
    }
};

constexpr std::array<Shape, 16> kShapes = {{{1, 1, 1},
                                            {1, 7, 4097},
                                            {7, 1, 255},
                                            {5, 3, 2},
                                            {16, 16, 16},
                                            {17, 31, 33},
                                            {64, 64, 64},
                                            {65, 33, 129},
                                            {128, 96, 257},
                                            {4, 255, 7},
                                            {257, 4, 64},
                                            {3, 5, 0},
                                            {0, 5, 3},
                                            {5, 0, 3},
                                            {0, 0, 0},
                                            {1, 300, 1}}};

TEST_P(Gemm, IsExactWhereSumsAre) {
    for (const Shape& shape : kShapes) {
        for (const DType in : kWideTypes) {
            for (uint32_t bits = 0; bits < 4; ++bits) {
                Options o;
                o.shape = shape;
                o.in = in;
                o.trans_a = (bits & 1U) != 0;
                o.trans_b = (bits & 2U) != 0;
                o.content = Content::small_integers;
                check_case(o, true);
                o.pad = 3;
                o.alpha = -2.0F;
                o.beta = 0.5F;
                o.bias = DType::fp32;
                check_case(o, true);
            }
        }
    }
}

TEST_P(Gemm, IsWithinTheBoundOfAnFp32Sum) {
    for (const Shape& shape : kShapes) {
        for (const DType in : kWideTypes) {
            for (const DType out : kWideTypes) {
                Options o;
                o.shape = shape;
                o.in = in;
                o.out = out;
                check_case(o);
                o.trans_b = true;
                o.alpha = 1.5F;
                o.beta = -0.75F;
                o.bias = out;
                check_case(o);
                o.trans_a = true;
                o.trans_b = false;
                o.pad = 5;
                o.bias = DType::fp32;
                o.gelu = true;
                check_case(o);
            }
        }
    }
}

TEST_P(Gemm, TakesEveryCombinationOfTheEpilogue) {
    for (const DType type : kWideTypes) {
        for (const DType bias : {DType::none, DType::fp32, DType::fp16, DType::bf16}) {
            for (uint32_t bits = 0; bits < 16; ++bits) {
                Options o;
                o.shape = {19, 23, 29};
                o.in = o.out = type;
                o.bias = bias;
                o.gelu = (bits & 1U) != 0;
                o.alpha = (bits & 2U) != 0 ? 0.3F : 1.0F;
                o.beta = (bits & 4U) != 0 ? 1.0F : 0.0F;
                check_case(o, false, (bits & 8U) != 0);
            }
        }
    }
}

TEST_P(Gemm, TakesBatchesAndUnalignedArrays) {
    for (const DType type : kWideTypes) {
        for (uint32_t bits = 0; bits < 4; ++bits) {
            Options o;
            o.shape = {9, 14, 35};
            o.in = o.out = type;
            o.batch = 5;
            o.pad = (bits & 1U) != 0 ? 2 : 0;
            o.trans_a = (bits & 1U) != 0;
            o.trans_b = (bits & 2U) != 0;
            o.beta = (bits & 2U) != 0 ? 1.0F : 0.0F;
            check_case(o);
            check_case(o, false, true, 1);
        }
    }
}

// One matrix for the whole batch: a stride of 0.
TEST_P(Gemm, TakesABatchThatSharesAnOperand) {
    Options o;
    o.shape = {9, 14, 35};
    o.batch = 3;
    GemmCase c = make_case(o);
    c.desc.batch_stride_b = 0;
    const int32_t supporting =
        for_each_candidate(device(), OpKind::gemm, [&](const Candidate& candidate) {
            HostArray result;
            if (!gemm(device(), candidate, c, result)) {
                return false;
            }
            EXPECT_TRUE(within_bound(c, result));
            return true;
        });
    EXPECT_GT(supporting, 0);
}

// 16-bit sums or 16-bit partial results would lose the ones.
TEST_P(Gemm, AccumulatesInFp32) {
    for (const DType type : kWideTypes) {
        GemmCase c = make_case([&] {
            Options o;
            o.shape = {3, 4, 4097};
            o.in = type;
            return o;
        }());
        for (int64_t i = 0; i < c.a.count; ++i) {
            c.a.set(i, 1.0F);
        }
        for (int64_t i = 0; i < c.b.count; ++i) {
            c.b.set(i, 1.0F);
        }
        for_each_candidate(device(), OpKind::gemm, [&](const Candidate& candidate) {
            HostArray result;
            if (!gemm(device(), candidate, c, result)) {
                return false;
            }
            for (int64_t i = 0; i < result.count; ++i) {
                EXPECT_EQ(result.get(i), 4097.0F);
            }
            return true;
        });
    }
}

TEST_P(Gemm, KeepsSubnormalsNanAndInfinity) {
    const float infinity = numerics::float_from_bits(numerics::kFloatInfinity);
    const float nan = numerics::float_from_bits(numerics::kFloatQuietNan);
    for (const DType type : kWideTypes) {
        Options o;
        o.shape = {4, 40, 20};
        o.in = type;
        o.content = Content::zeros;
        GemmCase c = make_case(o);
        const float tiny = type == DType::fp16 ? 0x1p-24F : 0x1p-130F;
        c.a.set(0 * 20 + 3, tiny);     // row 0: a subnormal times one
        c.a.set(1 * 20 + 3, infinity); // row 1: infinity times one
        c.a.set(2 * 20 + 3, nan);
        for (int64_t n = 0; n < 40; ++n) {
            c.b.set(3 * 40 + n, 1.0F);
        }
        for_each_candidate(device(), OpKind::gemm, [&](const Candidate& candidate) {
            HostArray result;
            if (!gemm(device(), candidate, c, result)) {
                return false;
            }
            for (int64_t n = 0; n < 40; ++n) {
                EXPECT_EQ(result.get(n), tiny) << dtype_name(type);
                EXPECT_EQ(result.get(40 + n), infinity);
                EXPECT_TRUE(numerics::is_nan(result.get(80 + n)));
                EXPECT_EQ(result.get(120 + n), 0.0F);
            }
            return true;
        });
    }
}

// beta 0 means that C is not read: garbage in D does not come through.
TEST_P(Gemm, DoesNotReadDWhereBetaIsZero) {
    Options o;
    o.shape = {7, 9, 11};
    GemmCase c = make_case(o);
    for (int64_t i = 0; i < c.c.count; ++i) {
        c.c.set(i, numerics::float_from_bits(numerics::kFloatQuietNan));
    }
    for_each_candidate(device(), OpKind::gemm, [&](const Candidate& candidate) {
        HostArray result;
        if (!gemm(device(), candidate, c, result)) {
            return false;
        }
        EXPECT_TRUE(within_bound(c, result));
        return true;
    });
}

// A plan keeps its description: it can be run again, on other arrays.
TEST_P(Gemm, RunsAPlanManyTimesWithTheSameBits) {
    Options o;
    o.shape = {33, 65, 130};
    o.in = DType::bf16;
    const GemmCase c = make_case(o);
    for_each_candidate(device(), OpKind::gemm, [&](const Candidate& candidate) {
        HostArray first;
        if (!gemm(device(), candidate, c, first)) {
            return false;
        }
        const DeviceArray a(device(), c.a);
        const DeviceArray b(device(), c.b);
        Plan* plan = nullptr;
        auto desc = std::make_unique<GemmDesc>(c.desc);
        check(candidate.prepare(device().device(), *desc, &plan));
        desc.reset();
        const std::unique_ptr<Plan> owner(plan);
        for (int32_t repeat = 0; repeat < 3; ++repeat) {
            DeviceArray d(device(), c.c);
            GemmBuffers buffers;
            buffers.a = a.data();
            buffers.b = b.data();
            buffers.d = d.data();
            check(candidate.run_plan(device().device(), device().queue(), *plan, buffers));
            EXPECT_TRUE(same_bits(first, d.download(), NanRule::same_bits));
        }
        return true;
    });
}

MP_ALL_BACKENDS(Gemm);

} // namespace
} // namespace mp::test
