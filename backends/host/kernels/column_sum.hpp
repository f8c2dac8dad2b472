// SPDX-License-Identifier: Apache-2.0
// column_sum of one strip of columns, in the order of ColumnSumDesc.
#pragma once

#include "host/kernels/jobs.hpp"
#include "host/kernels/tile.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// Rows that are added in one pass over the sums: these are then loaded and stored less often than
// the rows' elements.
inline constexpr int kRowsAtOnce = 8;

template <DType kDType> struct RowPointers {
    const typename InMemory<kDType>::type* row[kRowsAtOnce];
};

template <DType kDType, int kRows>
MP_ISA_INLINE void add_rows(const RowPointers<kDType>& rows, float* sums, int n) {
    using Codec = numerics::Codec<kDType>;
    const RowPointers<kDType> r = rows;
    MP_ISA_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        float sum = sums[i];
#pragma GCC unroll 8
        for (int k = 0; k < kRows; ++k) {
            sum += Codec::load(r.row[k][i]);
        }
        sums[i] = sum;
    }
}

// sums[0 ... n - 1] = the sums of one block of rows, n <= kColumnStrip columns wide: memory gives
// long runs faster.
template <DType kDType>
MP_ISA_FUNCTION void sum_block_as(const ColumnSumDesc& op, int64_t first_row, int64_t first_column,
                                  int n, float* sums) {
    using Memory = typename InMemory<kDType>::type;
    const auto row_at = [&op, first_column](int64_t row) {
        return element_address(op.source.data, kDType, row * op.columns + first_column);
    };
    const int64_t end = first_row + min_int(op.rows - first_row, kColumnSumBlock);
    __builtin_memset(sums, 0, static_cast<std::size_t>(n) * sizeof(float));
    int64_t row = first_row;
    for (; row + kRowsAtOnce <= end; row += kRowsAtOnce) {
        RowPointers<kDType> rows;
        for (int k = 0; k < kRowsAtOnce; ++k) {
            rows.row[k] = static_cast<const Memory*>(row_at(row + k));
        }
        add_rows<kDType, kRowsAtOnce>(rows, sums, n);
    }
    for (; row < end; ++row) {
        RowPointers<kDType> rows;
        rows.row[0] = static_cast<const Memory*>(row_at(row));
        add_rows<kDType, 1>(rows, sums, n);
    }
}

MP_ISA_INLINE void sum_block(const ColumnSumDesc& op, int64_t first_row, int64_t first_column,
                             int n, float* sums) {
    visit_floating(op.source.dtype, [&](auto type) MP_INLINED {
        sum_block_as<type.value>(op, first_row, first_column, n, sums);
    });
}

MP_ISA_INLINE void add_sums(const float* more, int n, float* sums) {
    MP_ISA_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        sums[i] += more[i];
    }
}

// The sums of all blocks into the destination, with its old value last.
MP_ISA_INLINE void store_sums(const ColumnSumDesc& op, int64_t first_column, int n, float* sums) {
    const DType to = op.destination.dtype;
    if (op.accumulate) {
        for (int done = 0; done < n; done += kTile) {
            const int length = min_int(n - done, kTile);
            alignas(64) float old[kTile];
            widen_tile(to, element_address(op.destination.data, to, first_column + done), old,
                       length);
            add_sums(old, length, sums + done);
        }
    }
    narrow_tile<numerics::Narrowing::nearest>(
        to, sums, element_address(op.destination.data, to, first_column), n, nullptr);
}

inline void column_sum_strip(const ColumnSumJob& job) {
    const auto n = static_cast<int>(job.columns);
    alignas(64) float total[kColumnStrip] = {};
    alignas(64) float block[kColumnStrip];
    for (int64_t row = 0; row < job.op->rows; row += kColumnSumBlock) {
        sum_block(*job.op, row, job.first_column, n, block);
        add_sums(block, n, total);
    }
    store_sums(*job.op, job.first_column, n, total);
}

inline void column_sum_block(const ColumnSumDesc& op, int64_t first_row, float* sums) {
    for (int64_t column = 0; column < op.columns; column += kColumnStrip) {
        sum_block(op, first_row, column, min_int(op.columns - column, kColumnStrip), sums + column);
    }
}

// Adds `blocks` rows of block sums to `total`, one after another, and stores it where asked to.
inline void column_sum_finish(const ColumnSumDesc& op, const float* sums, int64_t blocks,
                              float* total, bool store) {
    for (int64_t column = 0; column < op.columns; column += kColumnStrip) {
        const int n = min_int(op.columns - column, kColumnStrip);
        for (int64_t block = 0; block < blocks; ++block) {
            add_sums(sums + block * op.columns + column, n, total + column);
        }
        if (store) {
            store_sums(op, column, n, total + column);
        }
    }
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
