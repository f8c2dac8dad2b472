// SPDX-License-Identifier: Apache-2.0
// The codes of rows of blocks whose factors are known: straight to memory, or by panels that are transposed.
#pragma once

#include "host/kernels/quantize_lookup.hpp"
#include "host/kernels/quantize_tile.hpp"
#include "host/kernels/transpose.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

inline constexpr int kStripBlocks = 2048; // blocks in a row whose scales are computed together
inline constexpr int kMaxFactors = 16384; // of all rows of blocks of a strip
static_assert(kPanelRows == kQuantizePanel);

struct QuantizeScratch {
    CodePanel panel;
    float multiply[kMaxFactors + kScaleVector]; // with room behind
    uint32_t amaxes[kStripBlocks];
    uint16_t moves[kStripBlocks];
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
    // Where the codes of the only row go besides, for whoever transposes them later; null: this region's own panels.
    unsigned char* panel = nullptr;
    const FactorTables* tables = nullptr; // of the factors, where all rows share them
    const uint16_t* moves =
        nullptr; // by column, where bf16 times a power of two is all there is to do
};

// Two codes a byte, from element `first` of the array on; a byte shared with a neighbour keeps its half.
MP_ISA_FUNCTION inline void store_pairs(DType dtype, void* array, int64_t first,
                                        const unsigned char* codes, int n) {
    int i = 0;
    if (first % 2 != 0 && n > 0) {
        numerics::store_quantized(dtype, array, first, codes[i++]);
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
        numerics::store_quantized(dtype, array, first + i, codes[i]);
    }
}

MP_ISA_INLINE void store_codes(const QuantizeJob& job, int64_t element, const unsigned char* codes,
                               int n) {
    const QuantizeOne& op = *job.op;
    if (op.sink.codes.data == nullptr) {
        return;
    }
    if (is_packed(op.code_type())) {
        store_pairs(op.code_type(), op.sink.codes.data, element, codes, n);
        return;
    }
    copy_or_stream(element_address(op.sink.codes.data, op.code_type(), element), codes,
                   n * dtype_size(op.code_type()), job.stream);
}

// How many elements a span from here on may have: not beyond a tile of random bits.
MP_ISA_INLINE int span_length(const QuantizeOne& op, int64_t element, int64_t left) {
    const int64_t most = op.sink.rounding.stochastic
                             ? kTile - (op.sink.rounding.first_element + element) % kTile
                             : kSpan;
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
    const DType to = job.op->code_type();
    const bool is_fp8 = mp::is_fp8(to);
    return kHasQuantizeLookup && is_fp8 && !job.op->sink.rounding.stochastic && !job.counts;
}

// All rows of the region have the same factors.
MP_ISA_INLINE bool is_one_row_of_blocks(const ScaleGrid& grid, const QuantizeRegion& region) {
    return grid.block_rows == 0 || grid.block_rows >= region.rows;
}

// False where rows do not share the factors, or too few do for tables to be worth their while.
MP_ISA_INLINE bool share_tables(const QuantizeJob& job, const QuantizeRegion& region,
                                FactorTables& tables) {
    constexpr int64_t kFewRows = 8;
    const ScaleGrid& grid = job.op->grid();
    if (!can_look_up(job) || job.op->source.dtype() != DType::bf16 ||
        !is_one_row_of_blocks(grid, region) || region.rows < kFewRows ||
        grid.block_columns % 64 != 0 || region.factors > kMaxTables) {
        return false;
    }
    make_tables(job.op->code_type(), region.multiply, static_cast<int>(region.factors), tables);
    return true;
}

// Null where the columns of the region do not have a power of two each, which they share over all its rows.
MP_ISA_INLINE const uint16_t* share_moves(const QuantizeJob& job, const QuantizeRegion& region) {
    const QuantizeOne& op = *job.op;
    const ScaleGrid& grid = op.grid();
    if (!kHasQuantizeVector || can_look_up(job) || !is_one_row_of_blocks(grid, region) ||
        !region.is_finite || op.source.dtype() != DType::bf16 || !mp::is_fp8(op.code_type()) ||
        op.sink.rounding.stochastic || job.counts || region.factors > kStripBlocks) {
        return nullptr;
    }
    uint16_t* const moves = static_cast<QuantizeScratch*>(job.scratch)->moves;
    return find_moves(op.code_type(), region.multiply, static_cast<int>(region.factors), moves)
               ? moves
               : nullptr;
}

// The number in its row of the block that holds column `into` of the region.
MP_ISA_INLINE int64_t block_number(const QuantizeJob& job, int64_t into) {
    const int64_t width = job.op->grid().block_columns;
    return width == 0 ? 0 : into / width;
}

// The factors of the row's blocks, from the one that holds column `into` of the region on.
MP_ISA_INLINE const float* factors_of(const QuantizeJob& job, const QuantizeRegion& region,
                                      int64_t row, int64_t into) {
    const ScaleGrid& grid = job.op->grid();
    const int64_t down = grid.block_rows == 0 ? 0 : (row - region.first_row) / grid.block_rows;
    return region.multiply + down * region.factors + block_number(job, into);
}

// All at once by byte look-ups. False where the columns take the usual way, from the start.
MP_ISA_INLINE bool quantize_row_directly(const QuantizeJob& job, const QuantizeRegion& region,
                                         const QuantizeColumns& columns,
                                         numerics::QuantStats& stats) {
    const QuantizeOne& op = *job.op;
    const int64_t width = op.grid().block_columns;
    const bool may_be_finite =
        region.is_finite || (job.multiply != nullptr && !numerics::is_nan(*job.multiply));
    if (!can_look_up(job) || !may_be_finite) {
        return false;
    }
    const DType from = op.source.dtype();
    const int64_t into = columns.first - region.first_column;
    const int64_t element = columns.row * op.source.columns + columns.first;
    LookupRow row = {};
    row.source = element_address(op.source.data, from, element);
    row.n = columns.end - columns.first;
    row.factor = factors_of(job, region, columns.row, into);
    row.table = region.tables == nullptr ? nullptr : region.tables->bytes + block_number(job, into);
    row.width = width;
    row.before = width == 0 ? 0 : into % width;
    row.codes = columns.panel != nullptr
                    ? columns.panel
                    : element_address(op.sink.codes.data, op.code_type(), element);
    row.stream = columns.panel == nullptr && job.stream;
    row.ahead_bytes = region.ahead * dtype_size(from);
    if (!quantize_lookup(from, op.code_type(), !region.is_finite, row, stats.amax_bits)) {
        return false;
    }
    if (columns.panel != nullptr) {
        store_codes(job, element, columns.panel, static_cast<int>(row.n));
    }
    return true;
}

// kColumns: blocks are one column wide.
template <bool kColumns>
MP_ISA_INLINE void quantize_row(const QuantizeJob& job, const QuantizeRegion& region,
                                const QuantizeColumns& columns, numerics::QuantStats& stats) {
    if (quantize_row_directly(job, region, columns, stats)) {
        return;
    }
    const QuantizeOne& op = *job.op;
    const DType from = op.source.dtype();
    const int64_t width = op.grid().block_columns;
    const bool is_direct = columns.panel == nullptr && !job.stream && !is_packed(op.code_type());
    for (int64_t column = columns.first; column < columns.end;) {
        const int64_t element = columns.row * op.source.columns + column;
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
            codes =
                columns.panel + (column - columns.first) * (op.code_type() == DType::fp16 ? 2 : 1);
        } else if (is_direct) {
            codes = static_cast<unsigned char*>(
                element_address(op.sink.codes.data, op.code_type(), element));
        }
        if (region.ahead != 0) {
            prefetch_later(element_address(op.source.data, from, element + region.ahead),
                           n * dtype_size(from));
        }
        if (kColumns && region.moves != nullptr) {
            move_columns(op.code_type(), element_address(op.source.data, from, element),
                         region.moves + into, n, codes);
        } else {
            quantize_span(job, span, codes, stats);
        }
        if (!is_direct) {
            store_codes(job, element, codes, n);
        }
        column += n;
    }
}

// The panel, whose first code is of (row, column), to its place in the transposed matrix.
MP_ISA_INLINE void store_panel(const QuantizeJob& job, int64_t row, int rows, int64_t column,
                               int columns) {
    const QuantizeOne& op = *job.op;
    const int size = op.code_type() == DType::fp16 ? 2 : 1;
    auto* to =
        static_cast<unsigned char*>(op.sink.transposed) + (column * op.source.rows + row) * size;
    store_transposed(static_cast<QuantizeScratch*>(job.scratch)->panel, size, rows, columns,
                     {to, op.source.rows, job.stream});
}

// Panels of codes, each written as it is and transposed.
template <bool kColumns>
MP_ISA_FUNCTION void quantize_panels(const QuantizeJob& job, const QuantizeRegion& region,
                                     numerics::QuantStats& stats) {
    const QuantizeOne& op = *job.op;
    const int size = op.code_type() == DType::fp16 ? 2 : 1;
    const int64_t end_row = region.first_row + region.rows;
    const int64_t end_column = region.first_column + region.columns;
    CodePanel& panel = static_cast<QuantizeScratch*>(job.scratch)->panel;
    const int most = kPanelBytes / size;
    for (int64_t row = region.first_row; row < end_row; row += kPanelRows) {
        const int rows = min_int(end_row - row, kPanelRows);
        for (int64_t column = region.first_column; column < end_column; column += most) {
            const int columns = min_int(end_column - column, most);
            for (int i = 0; i < rows; ++i) {
                quantize_row<kColumns>(
                    job, region,
                    {row + i, column, column + columns, panel.bytes + i * kPanelStride}, stats);
            }
            store_panel(job, row, rows, column, columns);
        }
    }
}

template <bool kColumns>
MP_ISA_INLINE void quantize_region(const QuantizeJob& job, QuantizeRegion region,
                                   numerics::QuantStats& stats) {
    FactorTables tables;
    if constexpr (kColumns) {
        region.moves = share_moves(job, region);
    } else {
        region.tables = share_tables(job, region, tables) ? &tables : nullptr;
    }
    if (job.op->sink.transposed != nullptr && region.panel == nullptr) {
        quantize_panels<kColumns>(job, region, stats);
        return;
    }
    const int64_t end_column = region.first_column + region.columns;
    for (int64_t row = region.first_row; row < region.first_row + region.rows; ++row) {
        quantize_row<kColumns>(job, region, {row, region.first_column, end_column, region.panel},
                               stats);
    }
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
