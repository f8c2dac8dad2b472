// SPDX-License-Identifier: Apache-2.0
// column_sum of one strip of columns, in the order of ColumnSumDesc.
#pragma once

#include "kernels/chunk/jobs.hpp"
#include "kernels/chunk/memory.hpp"
#include "kernels/chunk/tile.hpp"

namespace mp::kernels::MP_CHUNK_NAMESPACE {

// Rows that are added in one pass over the sums: these are then loaded and stored less often than
// the rows' elements.
inline constexpr int kRowsAtOnce = 4;

template <DType kDType> struct RowPointers {
    const typename InMemory<kDType>::type* row[kRowsAtOnce];
};

template <DType kDType, int kRows>
MP_CHUNK_INLINE void add_rows(const RowPointers<kDType>& rows, float* sums, int n) {
    using Codec = numerics::Codec<kDType>;
    const RowPointers<kDType> r = rows;
    MP_CHUNK_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        float sum = sums[i];
#pragma GCC unroll 4
        for (int k = 0; k < kRows; ++k) {
            sum += Codec::load(r.row[k][i]);
        }
        sums[i] = sum;
    }
}

// Up to kTile columns: sums of one block of rows in `block`, of all blocks so far in `total`.
template <DType kDType>
MP_CHUNK_FUNCTION void sum_tile(const ColumnSumDesc& op, int64_t first_column, int n,
                                float* total) {
    float block[kTile];
    const auto row_at = [&op, first_column](int64_t row) {
        return static_cast<const typename InMemory<kDType>::type*>(
            element_address(op.source.data, kDType, row * op.columns + first_column));
    };
    for (int64_t first = 0; first < op.rows; first += kColumnSumBlock) {
        const int64_t end = first + min_int(op.rows - first, kColumnSumBlock);
        __builtin_memset(block, 0, sizeof(block));
        int64_t row = first;
        for (; row + kRowsAtOnce <= end; row += kRowsAtOnce) {
            RowPointers<kDType> rows;
            for (int k = 0; k < kRowsAtOnce; ++k) {
                rows.row[k] = row_at(row + k);
                // Far apart, the rows are streams that no hardware prefetcher sees.
                prefetch_at(row_at(row + k + 2 * kRowsAtOnce), n * dtype_size(kDType));
            }
            add_rows<kDType, kRowsAtOnce>(rows, block, n);
        }
        for (; row < end; ++row) {
            RowPointers<kDType> rows;
            rows.row[0] = row_at(row);
            add_rows<kDType, 1>(rows, block, n);
        }
        for (int i = 0; i < n; ++i) {
            total[i] += block[i];
        }
    }
}

MP_CHUNK_INLINE void sum_tile_of(const ColumnSumDesc& op, int64_t first_column, int n,
                                 float* total) {
    switch (op.source.dtype) {
    case DType::fp32:
        return sum_tile<DType::fp32>(op, first_column, n, total);
    case DType::fp16:
        return sum_tile<DType::fp16>(op, first_column, n, total);
    case DType::bf16:
        return sum_tile<DType::bf16>(op, first_column, n, total);
    case DType::fp8_e4m3:
        return sum_tile<DType::fp8_e4m3>(op, first_column, n, total);
    case DType::fp8_e5m2:
        return sum_tile<DType::fp8_e5m2>(op, first_column, n, total);
    default:
        return;
    }
}

inline void column_sum_tile(const ColumnSumDesc& op, int64_t first_column, int n) {
    float total[kTile] = {};
    sum_tile_of(op, first_column, n, total);
    const DType to = op.destination.dtype;
    void* out = element_address(op.destination.data, to, first_column);
    if (op.accumulate) {
        float old[kTile];
        widen_tile(to, out, old, n);
        for (int i = 0; i < n; ++i) {
            total[i] += old[i];
        }
    }
    narrow_tile<Rounding::nearest>(to, total, out, n, nullptr);
}

inline void column_sum_strip(const ColumnSumJob& job) {
    for (int64_t done = 0; done < job.columns; done += kTile) {
        column_sum_tile(*job.op, job.first_column + done, min_int(job.columns - done, kTile));
    }
}

} // namespace mp::kernels::MP_CHUNK_NAMESPACE
