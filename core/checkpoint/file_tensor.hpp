// SPDX-License-Identifier: Apache-2.0
// Rows of a tensor of a model's files into a tensor of the library's, of whatever format, a piece at a time.
#pragma once

#include "model/tensor_source.hpp"
#include "tensor/tensor.hpp"

namespace mp::checkpoint {

// Bytes as they are where types are equal and there are no scales; else numbers, rounded to nearest or quantized by the tensor's
// rule, with the bits that quant::quantize_matrix gives all of them at once. Throws invalid_shape, invalid_argument and
// invalid_dtype before anything is read. Where reading fails the tensor's elements and scales are those from before, new ones, or
// both. Waits.
void load_tensor(Stream& stream, const model::TensorSource& source, std::size_t index,
                 int64_t first_row, Tensor& tensor);

} // namespace mp::checkpoint
