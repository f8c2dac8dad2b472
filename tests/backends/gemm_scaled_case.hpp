// SPDX-License-Identifier: Apache-2.0
// Products of codes with scales for the tests: making them, running them, and what they must give. With k products,
// and scales that change after every b of them, |error| <= (min(k, b) + 2 + ceil(k / b)) u sum |a b s_a s_b|: the
// sums of the blocks, two multiplications, the additions (Higham, "Accuracy and stability of numerical
// algorithms", sections 3.1 and 4.2); one chain over scaled codes errs by k u at most.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "device/gemm_scales.hpp"
#include "gemm_case.hpp"

namespace mp::test {

inline constexpr DType kE4m3 = DType::fp8_e4m3;
inline constexpr DType kE5m2 = DType::fp8_e5m2;

enum class ScaleContent { powers, random, one };

struct ScaledOptions {
    Options base;
    DType b = kE4m3;
    ScaleGrid grid_a; // over op(A)
    ScaleGrid grid_b; // over op(B)
    ScaleContent scales = ScaleContent::powers;
    bool power_of_two = false;
    float multiply_d = 0.25F;
};

inline ScaleGrid transposed(ScaleGrid grid, bool is_transposed) {
    return is_transposed ? ScaleGrid{grid.dtype, grid.block_columns, grid.block_rows} : grid;
}

inline std::string grid_text(const ScaleGrid& grid) {
    return !grid.exists()
               ? "no scales"
               : std::string(dtype_name(grid.dtype)) + " for " + std::to_string(grid.block_rows) +
                     " x " + std::to_string(grid.block_columns);
}

inline std::string describe(const ScaledOptions& o) {
    const Options& b = o.base;
    return std::string(dtype_name(b.in)) + " (" + grid_text(o.grid_a) + ") x " + dtype_name(o.b) +
           " (" + grid_text(o.grid_b) + ") to " + dtype_name(b.out) + ", " +
           std::to_string(b.shape.m) + " x " + std::to_string(b.shape.n) + " x " +
           std::to_string(b.shape.k) + (b.trans_a ? ", A^T" : "") + (b.trans_b ? ", B^T" : "") +
           (b.gelu ? ", gelu" : "") + ", bias " + dtype_name(b.bias) + ", beta " +
           std::to_string(b.beta) + (o.power_of_two ? ", powers of two" : "");
}

inline HostArray make_scales(const ScaleGrid& grid, int64_t rows, int64_t columns,
                             ScaleContent content, uint64_t seed) {
    HostArray array(grid.exists() ? grid.dtype : DType::fp32, grid.count(rows, columns));
    for (int64_t i = 0; i < array.count; ++i) {
        const uint64_t h = numerics::splitmix64((seed << 40) + static_cast<uint64_t>(i));
        const auto exponent = static_cast<int32_t>(h % 7U) - 3;
        float scale = content == ScaleContent::one ? 1.0F : numerics::exp2_int(exponent);
        if (content == ScaleContent::random && grid.dtype == DType::fp32) {
            scale *= 1.0F + static_cast<float>((h >> 20) & 0xffffU) * 0x1p-16F;
        }
        array.set(i, scale);
    }
    return array;
}

struct ScaledCase {
    GemmCase gemm;
    HostArray scale_a, scale_b;
    float multiply_d = 1.0F;
};

inline ScaledCase make_scaled(const ScaledOptions& o) {
    ScaledCase c;
    c.gemm = make_case(o.base);
    GemmDesc& d = c.gemm.desc;
    d.dtype_b = o.b;
    c.gemm.b = make_array(o.b, c.gemm.b.count, o.base.content, 42);
    d.scale_a = transposed(o.grid_a, d.trans_a);
    d.scale_b = transposed(o.grid_b, d.trans_b);
    d.power_of_two_scales = o.power_of_two;
    const auto [a_rows, a_columns] = stored(d.trans_a, d.m, d.k);
    const auto [b_rows, b_columns] = stored(d.trans_b, d.k, d.n);
    c.scale_a = make_scales(d.scale_a, a_rows, a_columns, o.scales, 51);
    c.scale_b = make_scales(d.scale_b, b_rows, b_columns, o.scales, 52);
    c.multiply_d = o.multiply_d;
    return c;
}

struct Result {
    HostArray d;
    float amax = 0.0F;
};

// Starts amax at `amax`. False where the candidate does not take the case.
inline bool run_scaled(TestDevice& on, const Candidate& candidate, const ScaledCase& c,
                       Result& result, float amax = 0.0F) {
    const GemmDesc& desc = c.gemm.desc;
    if (!supports(on, candidate, desc)) {
        return false;
    }
    const DeviceArray a(on, c.gemm.a);
    const DeviceArray b(on, c.gemm.b);
    const DeviceArray other_c(on, c.gemm.c);
    const DeviceArray bias(on, c.gemm.bias);
    const DeviceArray scale_a(on, c.scale_a);
    const DeviceArray scale_b(on, c.scale_b);
    const DeviceValue<float> multiply(on, c.multiply_d);
    DeviceValue<float> amax_d(on, amax);
    DeviceArray d(on, c.gemm.c);
    GemmBuffers buffers;
    buffers.a = a.data();
    buffers.b = b.data();
    buffers.bias = desc.dtype_bias == DType::none ? nullptr : bias.data();
    buffers.c = desc.beta == 0.0F ? nullptr : other_c.data();
    buffers.d = d.data();
    buffers.scale_a = scale_a.data();
    buffers.scale_b = scale_b.data();
    if (is_fp8(desc.dtype_d)) {
        buffers.multiply_d = multiply.data();
        buffers.amax_d = amax_d.data();
    }
    Plan* plan = nullptr;
    check(candidate.prepare(on.device(), desc, &plan));
    const std::unique_ptr<Plan> owner(plan);
    check(candidate.run_plan(on.device(), on.queue(), *plan, buffers));
    result.d = d.download();
    result.amax = amax_d.download();
    return true;
}

// d before it is rounded to its type.
inline Expected expect_scaled(const ScaledCase& c, int64_t row, int64_t column) {
    const GemmDesc& d = c.gemm.desc;
    Sum sum;
    for (int64_t k = 0; k < d.k; ++k) {
        const int64_t in_a = d.trans_a ? k * d.lda + row : row * d.lda + k;
        const int64_t in_b = d.trans_b ? column * d.ldb + k : k * d.ldb + column;
        sum.add(static_cast<double>(c.gemm.a.get(in_a)) * static_cast<double>(c.gemm.b.get(in_b)) *
                static_cast<double>(scale_of_a(d, c.scale_a.bytes.data(), row, k)) *
                static_cast<double>(scale_of_b(d, c.scale_b.bytes.data(), k, column)));
    }
    const int64_t block = scale_block_k(d) == 0 ? std::max<int64_t>(d.k, 1) : scale_block_k(d);
    const int64_t steps = std::min(d.k, block) + 2 + (d.k + block - 1) / block;
    return expect_element(d, sum, steps, c.gemm.c.get(row * d.ldc + column),
                          d.dtype_bias == DType::none ? 0.0F : c.gemm.bias.get(column));
}

// Of the whole D, row by row: once for all candidates.
inline std::vector<Expected> expect_all(const ScaledCase& c) {
    std::vector<Expected> all;
    for (int64_t row = 0; row < c.gemm.desc.m; ++row) {
        for (int64_t column = 0; column < c.gemm.desc.n; ++column) {
            all.push_back(expect_scaled(c, row, column));
        }
    }
    return all;
}

// The codes that values in [low, high] may round to are a range, as rounding is monotonic.
inline bool is_fp8_between(DType dtype, float got, double low, double high, float multiply) {
    const auto code = [&](double d) {
        HostArray one(dtype, 1);
        one.set(0, before_fp8(static_cast<float>(d), multiply, dtype));
        return one.get(0);
    };
    return got >= code(low) && got <= code(high);
}

inline ::testing::AssertionResult within_scaled_bound(const ScaledCase& c,
                                                      const std::vector<Expected>& expected,
                                                      const Result& result,
                                                      const Allowance& allowance = {}) {
    const GemmDesc& d = c.gemm.desc;
    double largest = 0.0;
    double of_largest = 0.0;
    for (int64_t row = 0; row < d.m; ++row) {
        for (int64_t column = 0; column < d.n; ++column) {
            const Expected e = expected[static_cast<std::size_t>(row * d.n + column)].allowing(
                allowance, d.dtype_d);
            const float got = result.d.get(row * d.ldd + column);
            bool is_right = false;
            if (is_fp8(d.dtype_d)) {
                // Half a last place of fp32 for the value that is compared, as a float, and the product.
                const double slack = e.bound + 0x1p-23 * std::abs(e.value);
                is_right =
                    is_fp8_between(d.dtype_d, got, e.value - slack, e.value + slack, c.multiply_d);
                largest = std::max(largest, std::abs(e.value));
                of_largest = std::max(of_largest, slack);
            } else {
                is_right =
                    std::abs(static_cast<double>(got) - e.value) <= e.rounded_bound(d.dtype_d);
            }
            if (!is_right) {
                return ::testing::AssertionFailure()
                       << "[" << row << ", " << column << "]: " << got << " instead of " << e.value
                       << " +- " << e.bound;
            }
        }
    }
    if (is_fp8(d.dtype_d) &&
        !(std::abs(static_cast<double>(result.amax) - largest) <= of_largest)) {
        return ::testing::AssertionFailure() << "amax " << result.amax << " instead of " << largest;
    }
    return ::testing::AssertionSuccess();
}

} // namespace mp::test
