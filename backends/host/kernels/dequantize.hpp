// SPDX-License-Identifier: Apache-2.0
// dequantize of some rows: codes to fp32, times the scale of their block, rounded once.
#pragma once

#include "host/kernels/jobs.hpp"
#include "host/kernels/quantize_tile.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// Two codes a byte, from element `first` of the array on.
MP_ISA_INLINE void widen_packed(DType dtype, const void* array, int64_t first, float* values,
                                int n) {
    const auto* from = static_cast<const InMemory<DType::fp8_e4m3>::type*>(array);
    visit_dtype(dtype, [&](auto type) MP_INLINED {
        if constexpr (is_packed(type.value)) {
            for (int i = 0; i < n; ++i) {
                const int64_t element = first + i;
                const unsigned pair = from[element / 2];
                values[i] = numerics::Codec<type.value>::load(
                    static_cast<uint8_t>((element & 1) == 0 ? pair & 0xfU : pair >> 4));
            }
        }
    });
}

// The scales of `n` blocks in a row, decoded.
MP_ISA_INLINE void block_scales(const ArrayRef& source, int64_t first, int n, float* scales) {
    if (!source.format.grid.exists()) {
        scales[0] = 1.0F;
        return;
    }
    load_scales(source.format.grid.dtype, source.scale_inv, first, n, scales);
    if (source.format.grid.dtype == DType::fp8_e4m3) {
        const float decode = numerics::nvfp4_decode(*source.amax);
        for (int i = 0; i < n; ++i) {
            scales[i] *= decode;
        }
    }
}

// Whatever NaN it was, it becomes the same one.
MP_ISA_INLINE void unify_nan(float* values, int n) {
    MP_ISA_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        const uint32_t bits = numerics::bits_from_float(values[i]);
        values[i] = numerics::float_from_bits(
            numerics::select_u32(static_cast<int32_t>(bits & 0x7fffffffU) >
                                     static_cast<int32_t>(numerics::kFloatInfinity),
                                 numerics::kFloatQuietNan, bits));
    }
}

// n <= kTile elements of one row.
MP_ISA_INLINE void dequantize_tile(const DequantizeJob& job, int64_t row, int64_t column, int n) {
    const ArrayRef& source = job.op->source;
    const int64_t width = source.format.grid.block_columns;
    const int64_t element = row * source.columns + column;
    const int64_t into = width == 0 ? 0 : column % width;
    const auto blocks = static_cast<int>(width == 0 ? 1 : (into + n + width - 1) / width);
    float scales[kTile];
    block_scales(source, source.format.grid.index(row, column, source.columns), blocks, scales);
    alignas(64) float values[kTile];
    const DType from = source.dtype();
    if (is_packed(from)) {
        widen_packed(from, source.data, element, values, n);
    } else {
        widen_tile(from, element_address(source.data, from, element), values, n);
    }
    multiply_tile(values, values, n, scales, width, into);
    unify_nan(values, n);
    const DType to = job.op->destination.dtype;
    void* out = element_address(job.op->destination.data, to, element);
    const int64_t bytes = n * dtype_size(to);
    if (may_stream(job.stream, out, bytes)) {
        alignas(64) unsigned char buffer[4 * kTile];
        narrow_tile<numerics::Narrowing::nearest>(to, values, buffer, n, nullptr);
        stream_lines(out, buffer, bytes);
    } else {
        narrow_tile<numerics::Narrowing::nearest>(to, values, out, n, nullptr);
    }
}

inline void dequantize_rows(const DequantizeJob& job) {
    const int64_t end = job.first_column + job.columns;
    for (int64_t row = job.first_row; row < job.first_row + job.rows; ++row) {
        for (int64_t column = job.first_column; column < end; column += kTile) {
            dequantize_tile(job, row, column, min_int(end - column, kTile));
        }
    }
    if (job.stream) {
        finish_stream();
    }
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
