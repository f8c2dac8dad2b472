// SPDX-License-Identifier: Apache-2.0
// What every call of a layer asks of its tensors.
#pragma once

#include "linear/saved.hpp"
#include "tensor/tensor.hpp"

namespace mp::linear {

// `may_be_quantized`: weights and their gradients.
void check_dtype(const Tensor& tensor, const char* name, bool may_be_quantized = false);
void check_shape_is(const Tensor& tensor, const Shape& wanted, const char* name);
// Codes that a program made for a product.
void check_codes(const Tensor& codes, const Format& format, const Device& device, const char* name);
// Of a matrix [rows, columns] on the layer's device. Inputs of a call may be codes.
int64_t rows_of(const Tensor& tensor, int64_t columns, const Device& device, const char* name,
                bool may_be_quantized = false);
// Of y = f(x), and dx = f(dy).
void check_rows(const Tensor& from, const char* from_name, int64_t rows, const Tensor& to,
                const char* to_name, int64_t to_rows);
// What a forward that is done again is given.
void check_again(const Saved* saved, const Tensor& x, int64_t rows);
// What the weight's gradient needs.
void check_kept(const Saved* saved, const Tensor& dy, int64_t rows);

} // namespace mp::linear
