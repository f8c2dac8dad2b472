// SPDX-License-Identifier: Apache-2.0
// From fp32 sums to D: alpha, beta * C, bias, GELU, one rounding. The only place of the blocked product
// that knows them, except that a product whose D is fp32 applies alpha and bias by itself.
#pragma once

#include "host/gemm/gelu.hpp"
#include "host/gemm/panels.hpp"
#include "kernels/chunk/tile.hpp"

namespace mp::backends::host::MP_CHUNK_NAMESPACE {

namespace chunk = kernels::MP_CHUNK_NAMESPACE;

MP_CHUNK_INLINE void finish_tile(const FinishJob& job, int64_t row, int64_t column, int n,
                                 const float* bias) {
    const float* sums = job.sums + row * job.stride + column;
    float values[chunk::kTile];
    float other[chunk::kTile];
    MP_CHUNK_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        values[i] = job.alpha * sums[i];
    }
    if (job.beta != 0.0F) {
        chunk::widen_tile(job.dtype_d,
                          chunk::element_address(job.c, job.dtype_d, row * job.stride_c + column),
                          other, n);
        MP_CHUNK_INDEPENDENT
        for (int i = 0; i < n; ++i) {
            values[i] += job.beta * other[i];
        }
    }
    if (job.dtype_bias != DType::none) {
        MP_CHUNK_INDEPENDENT
        for (int i = 0; i < n; ++i) {
            values[i] += bias[column + i];
        }
    }
    if (job.gelu) {
        MP_CHUNK_INDEPENDENT
        for (int i = 0; i < n; ++i) {
            values[i] = gelu_fp32(values[i]);
        }
    }
    chunk::narrow_tile<chunk::Rounding::nearest>(
        job.dtype_d, values,
        chunk::element_address(job.d, job.dtype_d, row * job.stride_d + column), n, nullptr);
}

inline void widen_all(DType dtype, const void* source, int64_t count, float* out) {
    for (int64_t done = 0; done < count; done += chunk::kTile) {
        chunk::widen_tile(dtype, chunk::element_address(source, dtype, done), out + done,
                          chunk::min_int(count - done, chunk::kTile));
    }
}

inline void finish_block(const FinishJob& job) {
    float bias[kFinishColumns];
    if (job.dtype_bias != DType::none) {
        widen_all(job.dtype_bias, job.bias, job.columns, bias);
    }
    for (int64_t row = 0; row < job.rows; ++row) {
        for (int64_t column = 0; column < job.columns; column += chunk::kTile) {
            finish_tile(job, row, column, chunk::min_int(job.columns - column, chunk::kTile), bias);
        }
    }
}

} // namespace mp::backends::host::MP_CHUNK_NAMESPACE
