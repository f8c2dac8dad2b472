// SPDX-License-Identifier: Apache-2.0
// What one thread does to arrange codes: 16 codes of a row, or, where rows become columns, a block of 4 columns
// by 16 rows of the source, read four codes at a time by neighbouring threads, written 16 at a time. Also
// compiled for the host, by tests.
#pragma once

#include "cuda/codes.hpp"
#include "cuda/group.cuh"

namespace mp::backends::cuda {

inline constexpr int kCodes = 16; // of one store
inline constexpr int kTransposedRows = 4;

MP_HD_INLINE int64_t codes_units(const CodesWork& work) {
    const int64_t rows = work.transposed
                             ? (work.padded_rows + kTransposedRows - 1) / kTransposedRows
                             : work.padded_rows;
    return rows * (work.padded_columns / kCodes);
}

namespace detail {

MP_HD_INLINE uint32_t code_at(const CodesWork& work, int64_t row, int64_t column) {
    if (row >= work.rows || column >= work.columns) {
        return 0;
    }
    return work.source[work.transposed ? column * work.stride + row : row * work.stride + column];
}

MP_HD_INLINE void store_codes(const CodesWork& work, int64_t row, int64_t column,
                              const Word16& codes) {
    if (row < work.padded_rows) {
        *reinterpret_cast<Word16*>(work.destination + row * work.padded_columns + column) = codes;
    }
}

MP_HD_INLINE void copy_row(const CodesWork& work, int64_t row, int64_t column) {
    Word16 codes = {};
    MP_HD_UNROLL
    for (int j = 0; j < kCodes; ++j) {
        codes.v[j / 4] |= code_at(work, row, column + j) << (8 * (j % 4));
    }
    store_codes(work, row, column, codes);
}

MP_HD_INLINE void transpose_block(const CodesWork& work, int64_t row, int64_t column) {
    typedef uint32_t Four __attribute__((may_alias));
    const bool is_whole = row + kTransposedRows <= work.rows && column + kCodes <= work.columns &&
                          work.stride % 4 == 0 && reinterpret_cast<uintptr_t>(work.source) % 4 == 0;
    Word16 codes[kTransposedRows] = {};
    MP_HD_UNROLL
    for (int j = 0; j < kCodes; ++j) {
        uint32_t four = 0;
        if (is_whole) {
            four = *reinterpret_cast<const Four*>(work.source + (column + j) * work.stride + row);
        } else {
            for (int i = 0; i < kTransposedRows; ++i) {
                four |= code_at(work, row + i, column + j) << (8 * i);
            }
        }
        MP_HD_UNROLL
        for (int i = 0; i < kTransposedRows; ++i) {
            codes[i].v[j / 4] |= ((four >> (8 * i)) & 0xffU) << (8 * (j % 4));
        }
    }
    for (int i = 0; i < kTransposedRows; ++i) {
        store_codes(work, row + i, column, codes[i]);
    }
}

} // namespace detail

MP_HD_INLINE void codes_thread(const CodesWork& work, int64_t thread, int64_t threads) {
    const int64_t units = codes_units(work);
    const int64_t row_units = (work.padded_rows + kTransposedRows - 1) / kTransposedRows;
    const int64_t column_units = work.padded_columns / kCodes;
    for (int64_t unit = thread; unit < units; unit += threads) {
        if (work.transposed) {
            detail::transpose_block(work, unit % row_units * kTransposedRows,
                                    unit / row_units * kCodes);
        } else {
            detail::copy_row(work, unit / column_units, unit % column_units * kCodes);
        }
    }
}

MP_HD_INLINE void raise_amax_thread(float* amax, const float* found) {
    const uint32_t before = numerics::bits_from_float(*amax);
    const uint32_t now = numerics::bits_from_float(*found) & numerics::kFloatMagnitudeMask;
    *amax = numerics::float_from_bits(now > before ? now : before);
}

} // namespace mp::backends::cuda
