// SPDX-License-Identifier: Apache-2.0
// ScaleGrid: how the scales of a matrix of codes lie over it. The stored scale is always the
// dequantization factor: value = code * scale_inv.
#pragma once

#include <cstdint>

#include "dtype/dtype.hpp"

namespace mp {

// One scale for each block of block_rows x block_columns elements; an extent of 0 is the whole
// matrix's. Blocks at the right and lower edge are cut. Scales are dense and row-major: one row of
// them for each row of blocks.
struct ScaleGrid {
    DType dtype = DType::none; // fp32, e8m0 (MX), fp8_e4m3 (NVFP4); none: no scales, value = code
    int32_t block_rows = 0;
    int32_t block_columns = 0;

    MP_HD_INLINE constexpr bool exists() const { return dtype != DType::none; }
    MP_HD_INLINE constexpr bool is_one() const { return block_rows == 0 && block_columns == 0; }
    MP_HD_INLINE constexpr int64_t rows(int64_t matrix_rows) const {
        return block_rows == 0 ? 1 : (matrix_rows + block_rows - 1) / block_rows;
    }
    MP_HD_INLINE constexpr int64_t columns(int64_t matrix_columns) const {
        return block_columns == 0 ? 1 : (matrix_columns + block_columns - 1) / block_columns;
    }
    MP_HD_INLINE constexpr int64_t count(int64_t matrix_rows, int64_t matrix_columns) const {
        return exists() ? rows(matrix_rows) * columns(matrix_columns) : 0;
    }
    // Which scale element (row, column) of the matrix has.
    MP_HD_INLINE constexpr int64_t index(int64_t row, int64_t column,
                                         int64_t matrix_columns) const {
        const int64_t block_row = block_rows == 0 ? 0 : row / block_rows;
        const int64_t block_column = block_columns == 0 ? 0 : column / block_columns;
        return block_row * columns(matrix_columns) + block_column;
    }
    constexpr bool operator==(const ScaleGrid&) const = default;
};

// Whether scales belong to parts of the matrix: to blocks, rows or columns.
MP_HD_INLINE constexpr bool has_blocks(const ScaleGrid& grid) {
    return grid.exists() && !grid.is_one();
}

inline constexpr ScaleGrid kTensorScale = {DType::fp32, 0, 0};
inline constexpr ScaleGrid kRowScales = {DType::fp32, 1, 0};
inline constexpr ScaleGrid kColumnScales = {DType::fp32, 0, 1};
inline constexpr ScaleGrid kRowBlockScales = {DType::fp32, 1, 128};    // DeepSeek's 1x128
inline constexpr ScaleGrid kColumnBlockScales = {DType::fp32, 128, 1}; // for the weight gradient
inline constexpr ScaleGrid kSquareBlockScales = {DType::fp32, 128, 128};
inline constexpr ScaleGrid kMxRowScales = {DType::e8m0, 1, 32};
inline constexpr ScaleGrid kMxColumnScales = {DType::e8m0, 32, 1};
inline constexpr ScaleGrid kNvfp4Scales = {DType::fp8_e4m3, 1, 16};

} // namespace mp
