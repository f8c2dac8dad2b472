// SPDX-License-Identifier: Apache-2.0
// The products of the simulated cuBLASLt: column-major, in double.
#include <cmath>

#include "cublaslt.hpp"

namespace mp::simulated {

namespace {

double element(const void* data, const Layout& x, int64_t batch, int64_t row, int64_t column) {
    return static_cast<double>(numerics::load_as_float(
        dtype_of(x.type), data, batch * x.batch_stride + column * x.leading + row));
}

float gelu(float z) { // the tanh form
    const double x = static_cast<double>(z);
    return static_cast<float>(
        0.5 * x * (1.0 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x))));
}

void compute(const Call& call, int64_t batch, int64_t i, int64_t j) {
    const Problem& x = call.problem;
    const Product& p = x.p;
    const bool ta = p.trans_a != CUBLAS_OP_N;
    const bool tb = p.trans_b != CUBLAS_OP_N;
    const int64_t length = ta ? x.a.rows : x.a.columns;
    double sum = 0.0;
    for (int64_t k = 0; k < length; ++k) {
        sum += element(call.a, x.a, batch, ta ? k : i, ta ? i : k) *
               element(call.b, x.b, batch, tb ? j : k, tb ? k : j);
    }
    const float scale_a = p.scale_a == nullptr ? 1.0F : p.scale_a[has_vectors(p) ? i : 0];
    const float scale_b = p.scale_b == nullptr ? 1.0F : p.scale_b[has_vectors(p) ? j : 0];
    float z = call.alpha * (static_cast<float>(sum) * scale_a * scale_b);
    if (call.beta != 0.0F) {
        z += call.beta * static_cast<float>(element(call.c, x.c, batch, i, j));
    }
    if (has_bias(p)) {
        z += numerics::load_as_float(dtype_of(type_of_bias(x)), p.bias, i);
    }
    if (has_gelu(p)) {
        z = gelu(z);
    }
    if (p.amax_d != nullptr) {
        const uint32_t magnitude = numerics::bits_from_float(z) & numerics::kFloatMagnitudeMask;
        if (magnitude > numerics::bits_from_float(*p.amax_d)) {
            *p.amax_d = numerics::float_from_bits(magnitude);
        }
    }
    z = p.scale_d == nullptr ? z : z * *p.scale_d;
    // Into fp8 it saturates, infinity too.
    numerics::store_from_float(dtype_of(x.d.type), call.d,
                               batch * x.d.batch_stride + j * x.d.leading + i, z, is_fp8(x.d.type));
}

} // namespace

void compute_all(const Call& call) {
    const Problem& x = call.problem;
    if (x.p.amax_d != nullptr) {
        *x.p.amax_d = 0.0F;
    }
    for (int64_t batch = 0; batch < x.d.batch_count; ++batch) {
        for (int64_t j = 0; j < x.d.columns; ++j) {
            for (int64_t i = 0; i < x.d.rows; ++i) {
                compute(call, batch, i, j);
            }
        }
    }
}

} // namespace mp::simulated
