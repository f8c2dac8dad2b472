// SPDX-License-Identifier: Apache-2.0
// ArrayRef: a matrix in some device's memory with all that makes numbers of its elements. Owns nothing.
#pragma once

#include <cstdint>

#include "array/format.hpp"
#include "array/tensor_ref.hpp"

namespace mp {

struct ArrayRef {
    void* data = nullptr; // rows x columns, row-major
    void* scale_inv =
        nullptr; // format.grid.count(rows, columns) of the grid's type; null where there is no grid
    float* amax = nullptr; // of all numbers; NVFP4's second level; may be null elsewhere
    Format format;
    int64_t rows = 0;
    int64_t columns = 0;

    // Format none: there is no such array.
    MP_HD_INLINE constexpr bool exists() const noexcept { return format.exists(); }
    MP_HD_INLINE constexpr DType dtype() const noexcept { return format.dtype; }
    MP_HD_INLINE constexpr int64_t count() const noexcept { return rows * columns; }
    // Its elements, codes or numbers.
    MP_HD_INLINE constexpr TensorRef elements() const noexcept {
        return {data, count(), format.dtype};
    }
    MP_HD_INLINE constexpr int64_t scale_count() const noexcept {
        return format.grid.count(rows, columns);
    }
};

// Numbers that need no scale, as a matrix of one row or of several.
constexpr ArrayRef plain_array(const TensorRef& numbers) noexcept {
    return {numbers.data, nullptr, nullptr, {numbers.dtype, {}, {}}, 1, numbers.count};
}
constexpr ArrayRef plain_array(const TensorRef& numbers, int64_t rows, int64_t columns) noexcept {
    return {numbers.data, nullptr, nullptr, {numbers.dtype, {}, {}}, rows, columns};
}
// Codes under one scale.
constexpr ArrayRef scaled_array(const TensorRef& codes, float* scale_inv) noexcept {
    return {codes.data, scale_inv, nullptr, {codes.dtype, kTensorScale, {}}, 1, codes.count};
}

} // namespace mp
