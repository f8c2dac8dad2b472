// SPDX-License-Identifier: Apache-2.0
// scale_columns of some rows, by factors that are there: a tile of fp32 and back to the destination's type, around the caches
// where that is asked for.
#pragma once

#include "host/kernels/jobs.hpp"
#include "host/kernels/memory.hpp"
#include "host/kernels/tile.hpp"
#include "numerics/magnitude.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

inline void column_factors(const ScaleColumnsDesc& op, float* factors, float* biases) {
    const FloatInMemory* norms = op.norm;
    for (int64_t column = 0; column < op.columns; column += kTile) {
        const int n = min_int(op.columns - column, kTile);
        alignas(64) float wide[kTile];
        const FloatInMemory* magnitudes = as_floats(op.magnitude, column, wide, n);
        const FloatInMemory* norm = norms + column;
        float* to = factors + column;
        MP_ISA_INDEPENDENT
        for (int i = 0; i < n; ++i) {
            to[i] = numerics::quotient_or_zero(magnitudes[i], norm[i]);
        }
        if (op.bias.dtype != DType::none) {
            const void* bias = op.bias.data;
            widen_tile(op.bias.dtype, element_address(bias, op.bias.dtype, column), biases + column,
                       n);
        }
    }
}

// Elements from `first` on, of which the first is in `column`, rounded into `destination`.
template <bool kHasBias>
MP_ISA_INLINE void scale_tile(const ScaleColumnsJob& job, int64_t first, int64_t column, int n,
                              void* destination) {
    const DType to = job.op->destination.dtype;
    alignas(64) float wide[kTile];
    alignas(64) float narrow[kTile];
    const FloatInMemory* x = as_floats(job.op->source, first, wide, n);
    FloatInMemory* values = to == DType::fp32 ? static_cast<FloatInMemory*>(destination) : narrow;
    const float* factor = job.factors + column;
    const float* bias = kHasBias ? job.biases + column : nullptr;
    MP_ISA_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        const float scaled = x[i] * factor[i];
        if constexpr (kHasBias) {
            values[i] = scaled + bias[i];
        } else {
            values[i] = scaled;
        }
    }
    if (to != DType::fp32) {
        narrow_tile<numerics::Narrowing::nearest>(to, narrow, destination, n, nullptr);
    }
}

template <bool kHasBias> MP_ISA_FUNCTION void scale_rows_as(const ScaleColumnsJob& job) {
    const ScaleColumnsDesc& op = *job.op;
    const DType to = op.destination.dtype;
    for (int64_t row = job.first_row; row < job.first_row + job.rows; ++row) {
        for (int64_t column = 0; column < op.columns; column += kTile) {
            const int64_t first = row * op.columns + column;
            const int n = min_int(op.columns - column, kTile);
            void* destination = element_address(op.destination.data, to, first);
            if (may_stream(job.stream, destination, n * dtype_size(to))) {
                alignas(64) unsigned char buffer[sizeof(float) * kTile];
                scale_tile<kHasBias>(job, first, column, n, buffer);
                stream_lines(destination, buffer, n * dtype_size(to));
            } else {
                scale_tile<kHasBias>(job, first, column, n, destination);
            }
        }
    }
}

inline void scale_rows(const ScaleColumnsJob& job) {
    if (job.biases != nullptr) {
        scale_rows_as<true>(job);
    } else {
        scale_rows_as<false>(job);
    }
    if (job.stream) {
        finish_stream();
    }
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
