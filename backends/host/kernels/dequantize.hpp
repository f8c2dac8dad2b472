// SPDX-License-Identifier: Apache-2.0
// dequantize of some rows: codes to fp32, times the scale of their block, rounded once.
#pragma once

#include "host/kernels/blocks_vector.hpp"
#include "host/kernels/dequantize_vector.hpp"
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

// n <= kTile elements from `element` on; scales[0] belongs to the block whose first `into` columns are not there.
MP_ISA_FUNCTION inline void dequantize_by_floats(const DequantizeDesc& op, int64_t element, int n,
                                                 const float* scales, int64_t into, void* out) {
    const ArrayRef& source = op.source;
    const DType from = source.dtype();
    alignas(64) float values[kTile];
    if (is_packed(from)) {
        widen_packed(from, source.data, element, values, n);
    } else {
        widen_tile(from, element_address(source.data, from, element), values, n);
    }
    multiply_tile(values, values, n, scales, source.format.grid.block_columns, into);
    unify_nan(values, n);
    narrow_tile<numerics::Narrowing::nearest>(op.destination.dtype, values, out, n, nullptr);
}

// n <= kTile elements of one row, to those from `at` on; scales as above.
MP_ISA_INLINE void dequantize_tile(const DequantizeJob& job, int64_t element, int64_t at, int n,
                                   const float* scales, int64_t into) {
    const ArrayRef& source = job.op->source;
    const DType from = source.dtype();
    const DType to = job.op->destination.dtype;
    const int64_t width = source.format.grid.block_columns;
    alignas(64) unsigned char buffer[4 * kTile];
    void* const destination = element_address(job.op->destination.data, to, at);
    const int64_t bytes = n * dtype_size(to);
    const bool streams = may_stream(job.stream, destination, bytes);
    void* const out = streams ? buffer : destination;
    const int done = dequantize_vector(from, to, element_address(source.data, from, element), n,
                                       scales, width, into, out);
    if (done < n) {
        const int64_t rest = into + done;
        dequantize_by_floats(*job.op, element + done, n - done,
                             scales + (width == 0 ? 0 : rest / width),
                             width == 0 ? 0 : rest % width, element_address(out, to, done));
    }
    if (streams) {
        stream_lines(destination, buffer, bytes);
    }
}

// Columns whose scales are decoded once for all rows of their blocks.
inline constexpr int kScalesStrip = 2048;

MP_ISA_FUNCTION inline void dequantize_strip(const DequantizeJob& job, int64_t column,
                                             int columns) {
    const ArrayRef& source = job.op->source;
    const Window& window = job.op->window;
    const ScaleGrid& grid = source.format.grid;
    const int64_t width = grid.block_columns;
    const int64_t from_column = window.first_column + column;
    const int64_t before = width == 0 ? 0 : from_column % width;
    const auto blocks = static_cast<int>(width == 0 ? 1 : (before + columns + width - 1) / width);
    float scales[kScalesStrip];
    int64_t known = -1; // the number of the first of them
    for (int64_t row = job.first_row; row < job.first_row + job.rows; ++row) {
        const int64_t from_row = window.first_row + row;
        const int64_t first = grid.index(from_row, from_column, source.columns);
        if (first != known) {
            block_scales(source, first, blocks, scales);
            known = first;
        }
        for (int done = 0; done < columns; done += kTile) {
            const int64_t into = before + done;
            dequantize_tile(job, from_row * source.columns + from_column + done,
                            row * window.columns + column + done, min_int(columns - done, kTile),
                            scales + (width == 0 ? 0 : into / width),
                            width == 0 ? 0 : into % width);
        }
    }
}

// Whole blocks, n <= kTile elements.
template <DType kDType>
MP_ISA_FUNCTION inline void dequantize_blocks(const DequantizeJob& job, const uint8_t* from,
                                              int64_t at, int n) {
    constexpr TypeBlock kBlock = type_block(kDType);
    const DType to = job.op->destination.dtype;
    alignas(64) float values[kTile];
    for (int i = 0; i < n; i += static_cast<int>(kBlock.elements)) {
        widen_block<kDType>(from + i / kBlock.elements * kBlock.bytes, values + i);
    }
    unify_nan(values, n);
    alignas(64) unsigned char buffer[4 * kTile];
    void* const destination = element_address(job.op->destination.data, to, at);
    const int64_t bytes = n * dtype_size(to);
    const bool streams = may_stream(job.stream, destination, bytes);
    narrow_tile<numerics::Narrowing::nearest>(to, values, streams ? buffer : destination, n,
                                              nullptr);
    if (streams) {
        stream_lines(destination, buffer, bytes);
    }
}

template <DType kDType> MP_ISA_INLINE void dequantize_rows_of_blocks(const DequantizeJob& job) {
    const ArrayRef& source = job.op->source;
    const Window& window = job.op->window;
    const auto* codes = static_cast<const uint8_t*>(source.data);
    for (int64_t row = job.first_row; row < job.first_row + job.rows; ++row) {
        const int64_t first = (window.first_row + row) * source.columns + window.first_column;
        const int64_t end = job.first_column + job.columns;
        for (int64_t column = job.first_column; column < end; column += kTile) {
            dequantize_blocks<kDType>(job, codes + bytes_of(kDType, first + column),
                                      row * window.columns + column, min_int(end - column, kTile));
        }
    }
}

inline void dequantize_rows(const DequantizeJob& job) {
    const int64_t end = job.first_column + job.columns;
    numerics::visit_block_type(job.op->source.dtype(), [&](auto type) MP_INLINED {
        dequantize_rows_of_blocks<type.value>(job);
    });
    if (is_in_blocks(job.op->source.dtype())) {
        if (job.stream) {
            finish_stream();
        }
        return;
    }
    for (int64_t column = job.first_column; column < end; column += kScalesStrip) {
        dequantize_strip(job, column, min_int(end - column, kScalesStrip));
    }
    if (job.stream) {
        finish_stream();
    }
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
