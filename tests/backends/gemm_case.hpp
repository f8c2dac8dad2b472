// SPDX-License-Identifier: Apache-2.0
// A matrix product for the tests: its operands, running it, and what it must give.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "../gemm_bound.hpp"
#include "harness.hpp"

namespace mp::test {

struct GemmCase {
    GemmDesc desc{};
    HostArray a, b, bias, c;
    bool c_is_d = false;
    int64_t offset = 0;
};

// Rows and columns of a matrix as stored.
inline std::pair<int64_t, int64_t> stored(bool trans, int64_t rows, int64_t columns) {
    return trans ? std::pair{columns, rows} : std::pair{rows, columns};
}

inline int64_t elements(int64_t rows, int64_t columns, int64_t ld) {
    return rows == 0 || columns == 0 ? 0 : (rows - 1) * ld + columns;
}

struct Options : ProductOptions {
    Content content = Content::normal;
};

inline GemmCase make_case(const Options& o) {
    GemmCase c;
    c.desc = make_desc(o);
    const GemmDesc& d = c.desc;
    const auto [a_rows, a_columns] = stored(o.trans_a, d.m, d.k);
    const auto [b_rows, b_columns] = stored(o.trans_b, d.k, d.n);
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

inline Expected expect_element(const GemmCase& c, int64_t batch, int64_t row, int64_t column) {
    const GemmDesc& d = c.desc;
    Sum sum;
    for (int64_t k = 0; k < d.k; ++k) {
        const int64_t in_a = d.trans_a ? k * d.lda + row : row * d.lda + k;
        const int64_t in_b = d.trans_b ? column * d.ldb + k : k * d.ldb + column;
        sum.add(static_cast<double>(c.a.get(batch * d.batch_stride_a + in_a)) *
                static_cast<double>(c.b.get(batch * d.batch_stride_b + in_b)));
    }
    return expect_element(d, sum, d.k, c.c.get(batch * d.batch_stride_c + row * d.ldc + column),
                          d.dtype_bias == DType::none ? 0.0F : c.bias.get(column));
}

// Whether rows of 16-bit results or of their operands are no multiples of 16 bytes. cuBLASLt has fewer kernels for them: bias
// and GELU come in a second pass, over what the first has rounded; beside fp8, C does too.
inline bool has_short_rows(const GemmDesc& d) {
    const auto is_short = [](int64_t ld, DType type) { return ld * dtype_size(type) % 16 != 0; };
    return dtype_size(d.dtype_d) == 2 &&
           (is_short(d.lda, d.dtype_a) || is_short(d.ldb, d.dtype_b) || is_short(d.ldd, d.dtype_d));
}

// cuBLASLt takes a bias of D's type, and bf16 in place of scaled codes. What its sums and its GELU are allowed on a GPU, the
// device that the tests simulate is not: it computes exactly.
inline Allowance allowance_of(const TestDevice& on, const Candidate& candidate, const GemmDesc& d) {
    Allowance allowance;
    const std::string_view name = candidate.name;
    if (name.find("cublaslt") == std::string_view::npos) {
        return allowance;
    }
    allowance.rounds_bias = d.dtype_bias != DType::none && d.dtype_bias != d.dtype_d;
    const bool has_odd_scales = d.scale_a.dtype == DType::fp32 || d.scale_b.dtype == DType::fp32;
    if (name == "dequantize_cublaslt" && has_odd_scales && d.dtype_a != DType::fp16) {
        allowance.products = 2.0 * unit_of(DType::bf16) + 0x1p-16;
    }
    if (describe(on.device()).find("Simulated") != std::string::npos) {
        return allowance;
    }
    allowance.terms = name == "cublaslt_fp8" ? kFp8TermsOfGpu : 0.0;
    allowance.gelu = d.gelu ? kGeluOfGpu : 0.0;
    const bool is_followed =
        d.gelu || d.dtype_bias != DType::none || (is_fp8(d.dtype_a) && d.beta != 0.0F);
    allowance.rounds_sum = has_short_rows(d) && is_followed;
    return allowance;
}

inline ::testing::AssertionResult within_bound(const GemmCase& c, const HostArray& result,
                                               const Allowance& allowance = {}) {
    const GemmDesc& d = c.desc;
    for (int64_t batch = 0; batch < d.batch_count; ++batch) {
        for (int64_t row = 0; row < d.m; ++row) {
            for (int64_t column = 0; column < d.n; ++column) {
                const Expected e =
                    expect_element(c, batch, row, column).allowing(allowance, d.dtype_d);
                const double got = static_cast<double>(
                    result.get(batch * d.batch_stride_d + row * d.ldd + column));
                const double bound = e.rounded_bound(d.dtype_d);
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
