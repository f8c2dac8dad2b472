// SPDX-License-Identifier: Apache-2.0
// column_sum of one strip of columns, in the order of ColumnSumDesc.
#pragma once

#include "host/kernels/jobs.hpp"
#include "host/kernels/tile.hpp"
#include "numerics/magnitude.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// Rows that are added in one pass over the sums: these are then loaded and stored less often than
// the rows' elements.
inline constexpr int kRowsAtOnce = 8;
inline constexpr int kRowPairsAtOnce = 4; // of two arrays

template <DType kDType> struct RowPointers {
    const typename InMemory<kDType>::type* row[kRowsAtOnce];
};

// Columns from first_column on of `kRows` rows from `row` on.
template <DType kDType, int kRows>
MP_ISA_INLINE RowPointers<kDType> rows_at(const TensorRef& matrix, int64_t columns, int64_t row,
                                          int64_t first_column) {
    using Memory = typename InMemory<kDType>::type;
    RowPointers<kDType> rows;
    for (int k = 0; k < kRows; ++k) {
        rows.row[k] = static_cast<const Memory*>(
            element_address(matrix.data, kDType, (row + k) * columns + first_column));
    }
    return rows;
}

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
    const int64_t end = first_row + min_int(op.rows - first_row, kColumnSumBlock);
    __builtin_memset(sums, 0, static_cast<std::size_t>(n) * sizeof(float));
    int64_t row = first_row;
    for (; row + kRowsAtOnce <= end; row += kRowsAtOnce) {
        add_rows<kDType, kRowsAtOnce>(
            rows_at<kDType, kRowsAtOnce>(op.source, op.columns, row, first_column), sums, n);
    }
    for (; row < end; ++row) {
        add_rows<kDType, 1>(rows_at<kDType, 1>(op.source, op.columns, row, first_column), sums, n);
    }
}

// What products are made of: bf16 as it lies in memory, and all else as fp32, where it is or in `tile`.
template <DType kDType>
MP_ISA_INLINE const typename InMemory<kDType>::type* factors(const TensorRef& array, int64_t first,
                                                             float* tile, int n) {
    if constexpr (kDType == DType::fp32) {
        return as_floats(array, first, tile, n);
    } else {
        const void* data = array.data;
        return static_cast<const typename InMemory<kDType>::type*>(
            element_address(data, kDType, first));
    }
}
template <class Body> MP_ISA_INLINE void visit_factors(DType dtype, const Body& body) {
    if (dtype == DType::bf16) {
        body(DTypeConstant<DType::bf16>{});
    } else {
        body(DTypeConstant<DType::fp32>{});
    }
}

template <DType kSource, DType kTimes, int kRows>
MP_ISA_INLINE void add_products(const ColumnSumDesc& op, int64_t row, int64_t first_column, int n,
                                float* sums) {
    alignas(64) float tiles[2 * kRows][kTile];
    RowPointers<kSource> x;
    RowPointers<kTimes> y;
    for (int k = 0; k < kRows; ++k) {
        const int64_t first = (row + k) * op.columns + first_column;
        x.row[k] = factors<kSource>(op.source, first, tiles[2 * k], n);
        y.row[k] = factors<kTimes>(op.times, first, tiles[2 * k + 1], n);
    }
    MP_ISA_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        float sum = sums[i];
#pragma GCC unroll 8
        for (int k = 0; k < kRows; ++k) {
            sum += numerics::Codec<kSource>::load(x.row[k][i]) *
                   numerics::Codec<kTimes>::load(y.row[k][i]);
        }
        sums[i] = sum;
    }
}

template <DType kSource, DType kTimes>
MP_ISA_FUNCTION void sum_products(const ColumnSumDesc& op, int64_t first_row, int64_t first_column,
                                  int n, float* sums) {
    const int64_t end = first_row + min_int(op.rows - first_row, kColumnSumBlock);
    __builtin_memset(sums, 0, static_cast<std::size_t>(n) * sizeof(float));
    for (int64_t row = first_row; row < end;) {
        const bool are_many = row + kRowPairsAtOnce <= end;
        for (int done = 0; done < n; done += kTile) {
            const int64_t column = first_column + done;
            const int length = min_int(n - done, kTile);
            if (are_many) {
                add_products<kSource, kTimes, kRowPairsAtOnce>(op, row, column, length,
                                                               sums + done);
            } else {
                add_products<kSource, kTimes, 1>(op, row, column, length, sums + done);
            }
        }
        row += are_many ? kRowPairsAtOnce : 1;
    }
}

MP_ISA_INLINE void sum_block(const ColumnSumDesc& op, int64_t first_row, int64_t first_column,
                             int n, float* sums) {
    if (op.times.dtype != DType::none) {
        visit_factors(op.source.dtype, [&](auto source) MP_INLINED {
            visit_factors(op.times.dtype, [&](auto times) MP_INLINED {
                sum_products<source.value, times.value>(op, first_row, first_column, n, sums);
            });
        });
        return;
    }
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

MP_ISA_INLINE void divide_sums(const float* divisor, int n, float* sums) {
    const FloatInMemory* by = divisor;
    MP_ISA_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        sums[i] = numerics::quotient_or_zero(sums[i], by[i]);
    }
}

// The sums of all blocks into the destination: divided, and with its old value last.
MP_ISA_INLINE void store_sums(const ColumnSumDesc& op, int64_t first_column, int n, float* sums) {
    const DType to = op.destination.dtype;
    if (op.divisor != nullptr) {
        divide_sums(op.divisor + first_column, n, sums);
    }
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
