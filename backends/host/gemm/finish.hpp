// SPDX-License-Identifier: Apache-2.0
// From fp32 sums to D: alpha, beta * C, bias, GELU, amax of an fp8 D, one rounding. The only place of the blocked product
// that knows them, except that a product whose D is fp32 applies alpha and bias by itself.
#pragma once

#include "device/gemm_scales.hpp"
#include "host/gemm/gelu.hpp"
#include "host/gemm/panels.hpp"
#include "host/kernels/tile.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// The largest |x|, and what is left to round.
MP_ISA_FUNCTION inline void prepare_fp8(FinishJob& job, float* values, int n) {
    int32_t largest = 0;
    for (int i = 0; i < n; ++i) {
        int32_t pattern = 0;
        __builtin_memcpy(&pattern, values + i, sizeof(pattern));
        const int32_t magnitude = pattern & 0x7fffffff;
        largest = magnitude > largest ? magnitude : largest;
    }
    const auto found = static_cast<uint32_t>(largest);
    job.amax = found > job.amax ? found : job.amax;
    MP_ISA_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        values[i] = before_fp8(values[i], job.multiply, job.dtype_d);
    }
}

MP_ISA_INLINE void finish_tile(FinishJob& job, int64_t row, int64_t column, int n,
                               const float* bias) {
    const float* sums = job.sums + row * job.stride + column;
    float values[kTile];
    float other[kTile];
    if (job.scale_a != nullptr) {
        MP_ISA_INDEPENDENT
        for (int i = 0; i < n; ++i) {
            values[i] = job.alpha * (sums[i] * job.scale_a[row] * job.scale_b[column + i]);
        }
    } else {
        MP_ISA_INDEPENDENT
        for (int i = 0; i < n; ++i) {
            values[i] = job.alpha * sums[i];
        }
    }
    if (job.beta != 0.0F) {
        widen_tile(job.dtype_d, element_address(job.c, job.dtype_d, row * job.stride_c + column),
                   other, n);
        MP_ISA_INDEPENDENT
        for (int i = 0; i < n; ++i) {
            values[i] += job.beta * other[i];
        }
    }
    if (job.dtype_bias != DType::none) {
        MP_ISA_INDEPENDENT
        for (int i = 0; i < n; ++i) {
            values[i] += bias[column + i];
        }
    }
    if (job.gelu) {
        MP_ISA_INDEPENDENT
        for (int i = 0; i < n; ++i) {
            values[i] = gelu_fp32(values[i]);
        }
    }
    if (is_fp8(job.dtype_d)) {
        prepare_fp8(job, values, n);
    }
    narrow_tile<numerics::Narrowing::nearest>(
        job.dtype_d, values, element_address(job.d, job.dtype_d, row * job.stride_d + column), n,
        nullptr);
}

inline void widen_all(DType dtype, const void* source, int64_t count, float* out) {
    for (int64_t done = 0; done < count; done += kTile) {
        widen_tile(dtype, element_address(source, dtype, done), out + done,
                   min_int(count - done, kTile));
    }
}

inline void finish_block(FinishJob& job) {
    float bias[kFinishColumns];
    if (job.dtype_bias != DType::none) {
        widen_all(job.dtype_bias, job.bias, job.columns, bias);
    }
    for (int64_t row = 0; row < job.rows; ++row) {
        for (int64_t column = 0; column < job.columns; column += kTile) {
            finish_tile(job, row, column, min_int(job.columns - column, kTile), bias);
        }
    }
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
