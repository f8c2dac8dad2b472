// SPDX-License-Identifier: Apache-2.0
#include "host/gemm_epilogue.hpp"

#include <cmath>
#include <omp.h>

#include "numerics/codec.hpp"

namespace mp::backends::host {
namespace {

float gelu(float z) {
    constexpr float kSqrt2OverPi = 0.7978845608028654F;
    return 0.5F * z * (1.0F + std::tanh(kSqrt2OverPi * (z + 0.044715F * z * z * z)));
}

void finish_row(const GemmDesc& op, const GemmBuffers& buffers, const float* product, int64_t batch,
                int64_t row) {
    const int64_t c_start = batch * op.batch_stride_c + row * op.ldc;
    const int64_t d_start = batch * op.batch_stride_d + row * op.ldd;
    for (int64_t j = 0; j < op.n; ++j) {
        float z = op.alpha * product[j];
        if (op.beta != 0.0F) {
            z += op.beta * numerics::load_as_float(op.dtype_d, buffers.c, c_start + j);
        }
        if (op.dtype_bias != DType::none) {
            z += numerics::load_as_float(op.dtype_bias, buffers.bias, j);
        }
        numerics::store_from_float(op.dtype_d, buffers.d, d_start + j, op.gelu ? gelu(z) : z,
                                   false);
    }
}

} // namespace

void apply_epilogue(const GemmDesc& op, const GemmBuffers& buffers, const float* product,
                    int32_t threads) noexcept {
    const int64_t rows = op.batch_count * op.m;
#pragma omp parallel for num_threads(threads) schedule(static) if (rows * op.n > 16384)
    for (int64_t i = 0; i < rows; ++i) {
        finish_row(op, buffers, product + i * op.n, i / op.m, i % op.m);
    }
}

} // namespace mp::backends::host
