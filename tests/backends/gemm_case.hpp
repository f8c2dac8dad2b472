// SPDX-License-Identifier: Apache-2.0
// A matrix product for the tests: its operands, running it, and what it must give.
#pragma once

#include <cmath>
#include <memory>
#include <utility>

#include "harness.hpp"

namespace mp::test {

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
inline std::pair<int64_t, int64_t> stored(bool trans, int64_t rows, int64_t columns) {
    return trans ? std::pair{columns, rows} : std::pair{rows, columns};
}

inline int64_t elements(int64_t rows, int64_t columns, int64_t ld) {
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

inline GemmCase make_case(const Options& o) {
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
inline bool gemm(TestDevice& on, const Candidate& candidate, const GemmCase& c, HostArray& result) {
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

inline double gelu(double x) {
    return 0.5 * x *
           (1.0 + std::tanh(std::sqrt(2.0 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

inline Expected expect_element(const GemmCase& c, int64_t batch, int64_t row, int64_t column) {
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
    expected.bound =
        static_cast<double>(d.k) * kU * std::abs(static_cast<double>(d.alpha)) * magnitude;
    double terms = std::abs(static_cast<double>(d.alpha)) * magnitude;
    if (d.beta != 0.0F) {
        const double term =
            static_cast<double>(d.beta) *
            static_cast<double>(c.c.get(batch * d.batch_stride_c + row * d.ldc + column));
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
inline std::pair<double, double> rounding(DType dtype) {
    switch (dtype) {
    case DType::fp16:
        return {0x1p-11, 0x1p-25};
    case DType::bf16:
        return {0x1p-8, 0x1p-134};
    default:
        return {0x1p-24, 0x1p-150};
    }
}

inline ::testing::AssertionResult within_bound(const GemmCase& c, const HostArray& result) {
    const GemmDesc& d = c.desc;
    const auto [unit, smallest] = rounding(d.dtype_d);
    for (int64_t batch = 0; batch < d.batch_count; ++batch) {
        for (int64_t row = 0; row < d.m; ++row) {
            for (int64_t column = 0; column < d.n; ++column) {
                const Expected e = expect_element(c, batch, row, column);
                const double got = static_cast<double>(
                    result.get(batch * d.batch_stride_d + row * d.ldd + column));
                const double bound = e.bound + unit * (std::abs(e.value) + e.bound) + smallest;
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
inline ::testing::AssertionResult padding_untouched(const GemmCase& c, const HostArray& result) {
    const GemmDesc& d = c.desc;
    for (int64_t i = 0; i < result.count; ++i) {
        const int64_t in_matrix = d.batch_stride_d == 0 ? i : i % d.batch_stride_d;
        if (in_matrix % d.ldd >= d.n && result.code(i) != c.c.code(i)) {
            return ::testing::AssertionFailure() << "written between rows, at " << i;
        }
    }
    return ::testing::AssertionSuccess();
}

} // namespace mp::test
