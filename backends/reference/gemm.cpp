// SPDX-License-Identifier: Apache-2.0
// gemm: three loops. Being the oracle, it sums more exactly than it has to: products are exact in
// double for every input type, they are added in double in the order k = 0, 1, ..., and the sum is
// rounded once to fp32 before the epilogue, which is fp32 (GELU in double, rounded once). Likewise the
// sum of each block of k where scales change along it.
#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "device/desc_plan.hpp"
#include "device/gemm_scales.hpp"
#include "device/supports.hpp"
#include "numerics/codec.hpp"
#include "reference/candidates.hpp"

namespace mp::backends::reference {

namespace {

using numerics::load_as_float;

// D. Hendrycks, K. Gimpel: "Gaussian error linear units", the tanh form.
float gelu(float z) {
    constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
    const double x = static_cast<double>(z);
    return static_cast<float>(0.5 * x *
                              (1.0 + std::tanh(kSqrtTwoOverPi * (x + 0.044715 * x * x * x))));
}

// One matrix of the batch: element offsets of its four operands.
struct Offsets {
    int64_t a, b, c, d;
};

// The sum over k in [first, last).
float dot(const GemmDesc& op, const GemmBuffers& buffers, const Offsets& at, int64_t row,
          int64_t column, int64_t first, int64_t last) {
    double sum = 0.0;
    for (int64_t k = first; k < last; ++k) {
        const int64_t in_a = op.trans_a ? k * op.lda + row : row * op.lda + k;
        const int64_t in_b = op.trans_b ? column * op.ldb + k : k * op.ldb + column;
        sum += static_cast<double>(load_as_float(op.dtype_a, buffers.a, at.a + in_a)) *
               static_cast<double>(load_as_float(op.dtype_b, buffers.b, at.b + in_b));
    }
    return static_cast<float>(sum);
}

float scaled(const GemmDesc& op, const GemmBuffers& buffers, int64_t row, int64_t column, int64_t k,
             float sum) {
    return sum * scale_of_a(op, buffers.scale_a, row, k) *
           scale_of_b(op, buffers.scale_b, k, column);
}

float product(const GemmDesc& op, const GemmBuffers& buffers, const Offsets& at, int64_t row,
              int64_t column) {
    const int64_t block = scale_block_k(op);
    if (block == 0) {
        const float sum = dot(op, buffers, at, row, column, 0, op.k);
        return has_scales(op) ? scaled(op, buffers, row, column, 0, sum) : sum;
    }
    float total = 0.0F;
    for (int64_t k = 0; k < op.k; k += block) {
        const float sum = dot(op, buffers, at, row, column, k, std::min(k + block, op.k));
        total += scaled(op, buffers, row, column, k, sum);
    }
    return total;
}

void compute_element(const GemmDesc& op, const GemmBuffers& buffers, const Offsets& at, int64_t row,
                     int64_t column) {
    float z = op.alpha * product(op, buffers, at, row, column);
    if (op.beta != 0.0F) {
        z += op.beta * load_as_float(op.dtype_d, buffers.c, at.c + row * op.ldc + column);
    }
    if (op.dtype_bias != DType::none) {
        z += load_as_float(op.dtype_bias, buffers.bias, column);
    }
    z = op.gelu ? gelu(z) : z;
    if (is_fp8(op.dtype_d)) {
        if (buffers.amax_d != nullptr) {
            const uint32_t found = numerics::bits_from_float(z) & numerics::kFloatMagnitudeMask;
            const uint32_t before = numerics::bits_from_float(*buffers.amax_d);
            *buffers.amax_d = numerics::float_from_bits(std::max(found, before));
        }
        z = before_fp8(z, buffers.multiply_d == nullptr ? 1.0F : *buffers.multiply_d, op.dtype_d);
    }
    numerics::store_from_float(op.dtype_d, buffers.d, at.d + row * op.ldd + column, z, false);
}

Status run_plan(Device& /*device*/, Queue& /*queue*/, Plan& plan,
                const GemmBuffers& buffers) noexcept {
    const GemmDesc& op = DescPlan::of(plan);
    for (int64_t batch = 0; batch < op.batch_count; ++batch) {
        const Offsets at = {batch * op.batch_stride_a, batch * op.batch_stride_b,
                            batch * op.batch_stride_c, batch * op.batch_stride_d};
        for (int64_t row = 0; row < op.m; ++row) {
            for (int64_t column = 0; column < op.n; ++column) {
                compute_element(op, buffers, at, row, column);
            }
        }
    }
    return {};
}

} // namespace

const Candidate kGemm = {kName, takes_all<GemmDesc>, nullptr, DescPlan::prepare, run_plan};

} // namespace mp::backends::reference
