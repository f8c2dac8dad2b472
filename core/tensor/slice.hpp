// SPDX-License-Identifier: Apache-2.0
// A tensor's elements, all of them or some, as an ArrayRef.
#pragma once

#include "tensor/tensor.hpp"

namespace mp {

// All elements: numbers, or codes under one scale, in one row; codes in blocks as the matrix that they are.
ArrayRef slice_of(const Tensor& tensor);
// Elements [first, first + count). Of codes in blocks those are units of slice_unit(), the last one may be cut short by the end,
// and come as a matrix with the scales that belong to them.
ArrayRef slice_of(const Tensor& tensor, int64_t first, int64_t count);
ArrayRef slice_of(const ArrayRef& whole, int64_t first, int64_t count);
// The shape of such a slice by itself.
Shape slice_shape(const ScaleGrid& grid, int64_t columns, int64_t count);

// Where codes may be parted so that blocks, and pairs of codes in one byte, stay whole: at multiples of so many elements; at
// most all. Blocks of a single row end within it; else slices are whole rows of blocks.
int64_t slice_unit(DType codes, const ScaleGrid& grid, int64_t rows, int64_t columns);

// Elements with their scales and amax, between arrays of one format and shape; what either does not have stays.
void copy_array(Stream& stream, const ArrayRef& from, const ArrayRef& to, CopyKind kind);

// Bytes of a tensor, while it has memory, and its scales; 0 for null.
int64_t bytes_of(const std::shared_ptr<Tensor>& tensor);
// Its scales, or null.
std::shared_ptr<Tensor> scale_of(const std::shared_ptr<Tensor>& tensor);

} // namespace mp
