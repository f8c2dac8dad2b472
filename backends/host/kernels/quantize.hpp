// SPDX-License-Identifier: Apache-2.0
// quantize of some rows of blocks: the amax and the scale of each block, then its codes, while its elements
// are in the cache.
#pragma once

#include "host/kernels/quantize_lookup.hpp"
#include "host/kernels/quantize_tile.hpp"
#include "host/kernels/transpose.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// Columns whose scales are computed together: a row of blocks stays in the cache, and memory gives long runs.
inline constexpr int64_t kRowStrip = 4096; // blocks one row high, or as high as the matrix
inline constexpr int64_t kTallStrip =
    4096; // others: whole rows of most matrices, which lie together
inline constexpr int64_t kColumnsStrip = 512; // blocks one column wide
inline constexpr int64_t kTurnedStrip = 4096; // where codes are turned
inline constexpr int kStripBlocks = 2048;     // blocks in a row whose scales are computed together
inline constexpr int kMaxFactors = kPanelRows * kPanelColumns;
static_assert(kPanelRows == kQuantizePanel);

struct QuantizeScratch {
    CodePanel panel;
    float multiply[kMaxFactors];
    uint32_t amaxes[kStripBlocks];
};
static_assert(sizeof(QuantizeScratch) <= kQuantizeScratch);

// Rows and columns of the matrix whose blocks' factors are at hand: row after row of blocks, `factors` a row.
struct QuantizeRegion {
    int64_t first_row;
    int64_t rows;
    int64_t first_column;
    int64_t columns;
    const float* multiply;
    int64_t factors;
    bool is_finite;
    int64_t ahead; // the elements so far on are read next; 0: nothing to ask for
    const FactorTables* tables = nullptr; // of the factors, where all rows share them
};

// Two codes a byte, from element `first` of the array on; a byte shared with a neighbour keeps its half.
MP_ISA_FUNCTION inline void store_pairs(void* array, int64_t first, const unsigned char* codes,
                                        int n) {
    int i = 0;
    if (first % 2 != 0 && n > 0) {
        numerics::store_quantized(DType::fp4_e2m1, array, first, codes[i++]);
    }
    unsigned char* to = static_cast<unsigned char*>(array) + (first + i) / 2;
    const unsigned char* from = codes + i;
    const int pairs = (n - i) / 2;
    MP_ISA_INDEPENDENT
    for (int pair = 0; pair < pairs; ++pair) {
        to[pair] = static_cast<unsigned char>(from[2 * pair] | (from[2 * pair + 1] << 4));
    }
    i += 2 * pairs;
    if (i < n) {
        numerics::store_quantized(DType::fp4_e2m1, array, first + i, codes[i]);
    }
}

MP_ISA_INLINE void store_codes(const QuantizeJob& job, int64_t element, const unsigned char* codes,
                               int n) {
    const QuantizeDesc& op = *job.op;
    if (op.codes == nullptr) {
        return;
    }
    if (op.dtype == DType::fp4_e2m1) {
        store_pairs(op.codes, element, codes, n);
        return;
    }
    void* to = element_address(op.codes, op.dtype, element);
    const int64_t bytes = n * dtype_size(op.dtype);
    if (job.stream && bytes % 64 == 0 && bytes_to_line(to) == 0) {
        stream_lines(to, codes, bytes);
    } else {
        __builtin_memcpy(to, codes, static_cast<std::size_t>(bytes));
    }
}

// How many elements a span from here on may have: not beyond a tile of random bits.
MP_ISA_INLINE int span_length(const QuantizeDesc& op, int64_t element, int64_t left) {
    const int64_t most =
        op.rounding.stochastic ? kTile - (op.rounding.first_element + element) % kTile : kSpan;
    return min_int(left, most);
}

// Columns first ... end - 1 of one row of the region. `panel`: where the codes go besides, or null.
struct QuantizeColumns {
    int64_t row;
    int64_t first;
    int64_t end;
    unsigned char* panel;
};

MP_ISA_INLINE bool can_look_up(const QuantizeJob& job) {
    const DType to = job.op->dtype;
    const bool is_fp8 = mp::is_fp8(to);
    return kHasQuantizeLookup && is_fp8 && !job.op->rounding.stochastic && !job.counts;
}

// False where rows do not share the factors, or too few do for tables to be worth their while.
MP_ISA_INLINE bool share_tables(const QuantizeJob& job, const QuantizeRegion& region,
                                FactorTables& tables) {
    constexpr int64_t kFewRows = 8;
    const ScaleGrid& grid = job.op->grid;
    const bool is_one_row_of_blocks = grid.block_rows == 0 || grid.block_rows >= region.rows;
    if (!can_look_up(job) || job.op->source.dtype != DType::bf16 || !is_one_row_of_blocks ||
        region.rows < kFewRows || grid.block_columns % 64 != 0 || region.factors > kMaxTables) {
        return false;
    }
    make_tables(job.op->dtype, region.multiply, static_cast<int>(region.factors), tables);
    return true;
}

// The number in its row of the block that holds column `into` of the region.
MP_ISA_INLINE int64_t block_number(const QuantizeJob& job, int64_t into) {
    const int64_t width = job.op->grid.block_columns;
    return width == 0 ? 0 : into / width;
}

// The factors of the row's blocks, from the one that holds column `into` of the region on.
MP_ISA_INLINE const float* factors_of(const QuantizeJob& job, const QuantizeRegion& region,
                                      int64_t row, int64_t into) {
    const ScaleGrid& grid = job.op->grid;
    const int64_t down = grid.block_rows == 0 ? 0 : (row - region.first_row) / grid.block_rows;
    return region.multiply + down * region.factors + block_number(job, into);
}

// All at once by byte look-ups. False where the columns take the usual way, from the start.
MP_ISA_INLINE bool quantize_row_directly(const QuantizeJob& job, const QuantizeRegion& region,
                                         const QuantizeColumns& columns,
                                         numerics::QuantStats& stats) {
    const QuantizeDesc& op = *job.op;
    const int64_t width = op.grid.block_columns;
    const bool may_be_finite =
        region.is_finite || (job.multiply != nullptr && !numerics::is_nan(*job.multiply));
    if (!can_look_up(job) || width == 1 || !may_be_finite) {
        return false;
    }
    const DType from = op.source.dtype;
    const int64_t into = columns.first - region.first_column;
    const int64_t element = columns.row * op.columns + columns.first;
    LookupRow row = {};
    row.source = element_address(op.source.data, from, element);
    row.n = columns.end - columns.first;
    row.factor = factors_of(job, region, columns.row, into);
    row.table = region.tables == nullptr ? nullptr : region.tables->bytes + block_number(job, into);
    row.width = width;
    row.before = width == 0 ? 0 : into % width;
    row.codes =
        columns.panel != nullptr ? columns.panel : element_address(op.codes, op.dtype, element);
    row.stream = columns.panel == nullptr && job.stream;
    row.ahead_bytes = region.ahead * dtype_size(from);
    if (!quantize_lookup(from, op.dtype, !region.is_finite, row, stats.amax_bits)) {
        return false;
    }
    if (columns.panel != nullptr) {
        store_codes(job, element, columns.panel, static_cast<int>(row.n));
    }
    return true;
}

MP_ISA_INLINE void quantize_row(const QuantizeJob& job, const QuantizeRegion& region,
                                const QuantizeColumns& columns, numerics::QuantStats& stats) {
    if (quantize_row_directly(job, region, columns, stats)) {
        return;
    }
    const QuantizeDesc& op = *job.op;
    const DType from = op.source.dtype;
    const int64_t width = op.grid.block_columns;
    const bool is_direct = columns.panel == nullptr && !job.stream && op.dtype != DType::fp4_e2m1;
    for (int64_t column = columns.first; column < columns.end;) {
        const int64_t element = columns.row * op.columns + column;
        const int n = span_length(op, element, columns.end - column);
        const int64_t into = column - region.first_column;
        const QuantizeSpan span = {columns.row,
                                   column,
                                   n,
                                   factors_of(job, region, columns.row, into),
                                   width == 0 ? 0 : into % width,
                                   region.is_finite};
        alignas(64) unsigned char buffer[2 * kSpan];
        unsigned char* codes = buffer;
        if (columns.panel != nullptr) {
            codes = columns.panel + (column - columns.first) * (op.dtype == DType::fp16 ? 2 : 1);
        } else if (is_direct) {
            codes = static_cast<unsigned char*>(element_address(op.codes, op.dtype, element));
        }
        if (region.ahead != 0) {
            prefetch_later(element_address(op.source.data, from, element + region.ahead),
                           n * dtype_size(from));
        }
        quantize_span(job, span, codes, stats);
        if (!is_direct) {
            store_codes(job, element, codes, n);
        }
        column += n;
    }
}

// Panels of codes, each written as it is and turned.
MP_ISA_FUNCTION inline void quantize_panels(const QuantizeJob& job, const QuantizeRegion& region,
                                            numerics::QuantStats& stats) {
    const QuantizeDesc& op = *job.op;
    const auto size = static_cast<int>(dtype_size(op.dtype));
    const int64_t end_row = region.first_row + region.rows;
    const int64_t end_column = region.first_column + region.columns;
    CodePanel& panel = static_cast<QuantizeScratch*>(job.scratch)->panel;
    for (int64_t row = region.first_row; row < end_row; row += kPanelRows) {
        const int rows = min_int(end_row - row, kPanelRows);
        for (int64_t column = region.first_column; column < end_column; column += kPanelColumns) {
            const int columns = min_int(end_column - column, kPanelColumns);
            for (int i = 0; i < rows; ++i) {
                quantize_row(
                    job, region,
                    {row + i, column, column + columns, panel.bytes + i * kPanelColumns * size},
                    stats);
            }
            auto* to =
                static_cast<unsigned char*>(op.codes_transposed) + (column * op.rows + row) * size;
            store_turned(panel, size, rows, columns, {to, op.rows, job.stream});
        }
    }
}

MP_ISA_INLINE void quantize_region(const QuantizeJob& job, QuantizeRegion region,
                                   numerics::QuantStats& stats) {
    FactorTables tables;
    region.tables = share_tables(job, region, tables) ? &tables : nullptr;
    if (job.op->codes_transposed != nullptr) {
        quantize_panels(job, region, stats);
        return;
    }
    const int64_t end_column = region.first_column + region.columns;
    for (int64_t row = region.first_row; row < region.first_row + region.rows; ++row) {
        quantize_row(job, region, {row, region.first_column, end_column, nullptr}, stats);
    }
}

// The factors of `blocks` blocks in a row from (row, column) on, by their amaxes; stores their scales.
MP_ISA_FUNCTION inline void scale_blocks(const QuantizeJob& job, int64_t row, int64_t column,
                                         int blocks, const uint32_t* amaxes, float* multiply) {
    const QuantizeDesc& op = *job.op;
    const int64_t first = op.grid.index(row, column, op.columns);
    float inverses[kStripBlocks];
    for (int done = 0; done < blocks; done += kStripBlocks) {
        const int n = min_int(blocks - done, kStripBlocks);
        if (op.policy.rule == numerics::ScaleRule::msamp) {
            load_scales(op.grid.dtype, op.scale_inv, first + done, n, inverses);
        }
        scales_of(op.policy, amaxes + done, job.tensor_amax, n, multiply + done, inverses);
        store_scales(op.grid.dtype, op.scale_inv, first + done, n, inverses);
    }
}

// Rows of blocks that are quantized together: where codes are turned, as many as fill a panel.
MP_ISA_INLINE int64_t band_rows(const QuantizeJob& job) {
    const int64_t height = job.op->grid.block_rows;
    if (height == 0) {
        return job.rows;
    }
    const bool fills_panel = job.op->codes_transposed == nullptr || height >= kPanelRows;
    return fills_panel ? height : kPanelRows / height * height;
}

// The columns of one band whose factors are computed together: whole blocks.
MP_ISA_INLINE int64_t strip_columns(const QuantizeJob& job) {
    const int64_t width = job.op->grid.block_columns;
    if (width == 0) {
        return job.columns;
    }
    const int64_t height = job.op->grid.block_rows;
    int64_t most = job.op->codes_transposed != nullptr ? kTurnedStrip
                   : height <= 1                       ? kRowStrip
                   : width == 1                        ? kColumnsStrip
                                                       : kTallStrip;
    const int64_t rows = height == 0 ? 1 : band_rows(job) / height; // of blocks
    while (most / width > kStripBlocks || most / width * rows > kMaxFactors) {
        most /= 2;
    }
    return width >= most ? width : most / width * width;
}

// From a strip to the one that is read after it: to the right, or below on the left.
MP_ISA_INLINE int64_t elements_ahead(const QuantizeDesc& op, int64_t first_column, int64_t rows,
                                     int64_t columns) {
    return first_column + columns < op.columns ? columns : rows * op.columns - first_column;
}

MP_ISA_INLINE void quantize_strip(const QuantizeJob& job, int64_t first_row, int64_t rows,
                                  int64_t first_column, int64_t columns, float* multiply,
                                  uint32_t* amaxes, numerics::QuantStats& stats) {
    const QuantizeDesc& op = *job.op;
    const int64_t width = op.grid.block_columns;
    const int64_t height = op.grid.block_rows == 0 ? rows : op.grid.block_rows;
    const auto blocks = static_cast<int>(width == 0 ? 1 : (columns + width - 1) / width);
    uint32_t largest = 0;
    float* here = multiply;
    for (int64_t row = first_row; row < first_row + rows; row += height, here += blocks) {
        __builtin_memset(amaxes, 0, static_cast<std::size_t>(blocks) * sizeof(uint32_t));
        for (int64_t i = row; i < row + height && i < first_row + rows; ++i) {
            raise_row(
                op.source.dtype,
                element_address(op.source.data, op.source.dtype, i * op.columns + first_column),
                columns, width, amaxes);
        }
        for (int i = 0; i < blocks; ++i) {
            raise(largest, amaxes[i]);
        }
        scale_blocks(job, row, first_column, blocks, amaxes, here);
    }
    raise(stats.amax_bits, largest);
    quantize_region(job,
                    {first_row, rows, first_column, columns, multiply, blocks,
                     largest < numerics::kFloatInfinity,
                     elements_ahead(op, first_column, rows, columns)},
                    stats);
}

inline void quantize_block_rows(const QuantizeJob& job, numerics::QuantStats& stats) {
    if (job.multiply != nullptr) {
        quantize_region(job,
                        {job.first_row, job.rows, job.first_column, job.columns, job.multiply, 1,
                         job.is_finite, 0},
                        stats);
    } else {
        auto& scratch = *static_cast<QuantizeScratch*>(job.scratch);
        const int64_t band = band_rows(job);
        const int64_t strip = strip_columns(job);
        const int64_t end_row = job.first_row + job.rows;
        const int64_t end_column = job.first_column + job.columns;
        for (int64_t row = job.first_row; row < end_row; row += band) {
            for (int64_t column = job.first_column; column < end_column; column += strip) {
                quantize_strip(job, row, min_int(end_row - row, band), column,
                               min_int(end_column - column, strip), scratch.multiply,
                               scratch.amaxes, stats);
            }
        }
    }
    if (job.stream) {
        finish_stream();
    }
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
