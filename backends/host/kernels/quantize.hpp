// SPDX-License-Identifier: Apache-2.0
// quantize of some rows of blocks: the amax and the scale of each block, then its codes, while its elements
// are in the cache.
#pragma once

#include "host/kernels/quantize_rows.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// Columns whose scales are computed together: a row of blocks stays in the cache, and memory gives long runs.
inline constexpr int64_t kRowStrip = 4096; // blocks one row high, or as high as the matrix
inline constexpr int64_t kTallStrip =
    4096; // others: whole rows of most matrices, which lie together
inline constexpr int64_t kColumnsStrip = 512;     // blocks one column wide
inline constexpr int64_t kTransposedStrip = 4096; // where codes are transposed
inline constexpr int64_t kRaisedRows = 8;         // whose columns' amaxes are found together

// The factors of `blocks` blocks in a row from (row, column) on, by their amaxes; stores their scales where it is asked to.
MP_ISA_FUNCTION inline void scale_blocks(const QuantizeJob& job, int64_t row, int64_t column,
                                         int blocks, const uint32_t* amaxes, float* multiply,
                                         bool stores) {
    const QuantizeOne& op = *job.op;
    const int64_t first = op.grid().index(row, column, op.source.columns);
    float inverses[kStripBlocks];
    for (int done = 0; done < blocks; done += kStripBlocks) {
        const int n = min_int(blocks - done, kStripBlocks);
        if (op.policy().rule == numerics::ScaleRule::msamp) {
            load_scales(op.grid().dtype, op.sink.codes.scale_inv, first + done, n, inverses);
        }
        scales_of(op.policy(), amaxes + done, job.tensor_amax, whole_scale_vectors(n),
                  multiply + done, inverses);
        if (stores) {
            store_scales(op.grid().dtype, op.sink.codes.scale_inv, first + done, n, inverses);
        }
    }
}

// Rows of blocks that are quantized together: where codes are transposed, as many as fill a panel.
MP_ISA_INLINE int64_t band_rows(const QuantizeJob& job) {
    const int64_t height = job.op->grid().block_rows;
    if (height == 0) {
        return job.rows;
    }
    const bool fills_panel = job.op->sink.transposed == nullptr || height >= kPanelRows;
    return fills_panel ? height : kPanelRows / height * height;
}

// The columns of one band whose factors are computed together: whole blocks.
MP_ISA_INLINE int64_t strip_columns(const QuantizeJob& job) {
    const int64_t width = job.op->grid().block_columns;
    if (width == 0) {
        return job.columns;
    }
    const int64_t height = job.op->grid().block_rows;
    int64_t most = job.op->sink.transposed != nullptr ? kTransposedStrip
                   : height <= 1                      ? kRowStrip
                   : width == 1                       ? kColumnsStrip
                                                      : kTallStrip;
    const int64_t rows = height == 0 ? 1 : band_rows(job) / height; // of blocks
    while (most / width > kStripBlocks || most / width * rows > kMaxFactors) {
        most /= 2;
    }
    return width >= most ? width : most / width * width;
}

// From a strip to the one that is read after it: to the right, or below on the left.
MP_ISA_INLINE int64_t elements_ahead(const QuantizeOne& op, int64_t first_column, int64_t rows,
                                     int64_t columns) {
    return first_column + columns < op.source.columns ? columns
                                                      : rows * op.source.columns - first_column;
}

// The amaxes of one row of blocks.
template <bool kColumns>
MP_ISA_INLINE void find_amaxes(const QuantizeJob& job, int64_t row, int64_t end_row,
                               int64_t first_column, int64_t columns, int blocks,
                               uint32_t* amaxes) {
    const ArrayRef& source = job.op->source;
    const auto at = [&](int64_t i) MP_INLINED {
        return element_address(source.data, source.dtype(), i * source.columns + first_column);
    };
    __builtin_memset(amaxes, 0, static_cast<std::size_t>(blocks) * sizeof(uint32_t));
    if constexpr (kColumns) {
        raise_columns(source.dtype(), at(row), source.columns, end_row - row, columns, amaxes);
    } else {
        for (; row < end_row; ++row) {
            raise_row(source.dtype(), at(row), columns, job.op->grid().block_columns, amaxes);
        }
    }
}

// `panel`: as in QuantizeRegion.
template <bool kColumns>
MP_ISA_INLINE void quantize_strip(const QuantizeJob& job, int64_t first_row, int64_t rows,
                                  int64_t first_column, int64_t columns, unsigned char* panel,
                                  numerics::QuantStats& stats) {
    const QuantizeOne& op = *job.op;
    auto& scratch = *static_cast<QuantizeScratch*>(job.scratch);
    float* const multiply = scratch.multiply;
    uint32_t* const amaxes = scratch.amaxes;
    const int64_t width = op.grid().block_columns;
    const int64_t height = op.grid().block_rows == 0 ? rows : op.grid().block_rows;
    const auto blocks = static_cast<int>(width == 0 ? 1 : (columns + width - 1) / width);
    const bool are_known = kColumns && job.known_amaxes != nullptr;
    const uint32_t* const found = are_known ? job.known_amaxes + first_column : amaxes;
    uint32_t largest = 0;
    float* here = multiply;
    for (int64_t row = first_row; row < first_row + rows; row += height, here += blocks) {
        if (!are_known) {
            find_amaxes<kColumns>(job, row, row + min_int(first_row + rows - row, height),
                                  first_column, columns, blocks, amaxes);
        }
        for (int i = 0; i < blocks; ++i) {
            raise(largest, found[i]);
        }
        scale_blocks(job, row, first_column, blocks, found, here, !are_known || row == 0);
    }
    raise(stats.amax_bits, largest);
    quantize_region<kColumns>(job,
                              {first_row, rows, first_column, columns, multiply, blocks,
                               largest < numerics::kFloatInfinity,
                               elements_ahead(op, first_column, rows, columns), panel},
                              stats);
}

// Blocks one row high whose codes are transposed: each row is read once, by way of the first-level cache.
MP_ISA_INLINE bool is_thin_panel(const QuantizeJob& job, int columns) {
    const QuantizeOne& op = *job.op;
    return op.sink.transposed != nullptr && op.grid().block_rows == 1 &&
           columns * (op.code_type() == DType::fp16 ? 2 : 1) <= kPanelBytes;
}
template <bool kColumns>
MP_ISA_FUNCTION void quantize_thin_panel(const QuantizeJob& job, int64_t first_row, int rows,
                                         int64_t first_column, int columns,
                                         numerics::QuantStats& stats) {
    CodePanel& panel = static_cast<QuantizeScratch*>(job.scratch)->panel;
    for (int i = 0; i < rows; ++i) {
        quantize_strip<kColumns>(job, first_row + i, 1, first_column, columns,
                                 panel.bytes + i * kPanelStride, stats);
    }
    store_panel(job, first_row, rows, first_column, columns);
}

MP_ISA_INLINE void raise_columns_of(const QuantizeJob& job, int64_t row, int64_t rows) {
    const ArrayRef& source = job.op->source;
    const void* first =
        element_address(source.data, source.dtype(), row * source.columns + job.first_column);
    raise_columns(source.dtype(), first, source.columns, rows, job.columns,
                  job.column_amaxes + job.first_column);
}

template <bool kColumns>
MP_ISA_INLINE void quantize_bands(const QuantizeJob& job, numerics::QuantStats& stats) {
    const int64_t band = band_rows(job);
    const int64_t strip = strip_columns(job);
    const int64_t end_row = job.first_row + job.rows;
    const int64_t end_column = job.first_column + job.columns;
    // So many rows together, just before they are quantized.
    const int64_t raised = band * ((kRaisedRows + band - 1) / band);
    for (int64_t row = job.first_row; row < end_row; row += band) {
        if (job.column_amaxes != nullptr && (row - job.first_row) % raised == 0) {
            raise_columns_of(job, row, min_int(end_row - row, raised));
        }
        for (int64_t column = job.first_column; column < end_column; column += strip) {
            const int rows = min_int(end_row - row, band);
            const int columns = min_int(end_column - column, strip);
            if (is_thin_panel(job, columns)) {
                quantize_thin_panel<kColumns>(job, row, rows, column, columns, stats);
            } else {
                quantize_strip<kColumns>(job, row, rows, column, columns, nullptr, stats);
            }
        }
    }
}

inline void quantize_block_rows(const QuantizeJob& job, numerics::QuantStats& stats) {
    if (job.finds_columns_only) {
        raise_columns_of(job, job.first_row, job.rows);
        return;
    }
    if (job.multiply != nullptr) {
        quantize_region<false>(job,
                               {job.first_row, job.rows, job.first_column, job.columns,
                                job.multiply, 1, job.is_finite, 0},
                               stats);
    } else if (job.op->grid().block_columns == 1) {
        quantize_bands<true>(job, stats);
    } else {
        quantize_bands<false>(job, stats);
    }
    if (job.stream) {
        finish_stream();
    }
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
