// SPDX-License-Identifier: Apache-2.0
// A tensor's elements, all of them or some, as an ArrayRef.
#pragma once

#include "tensor/tensor.hpp"

namespace mp {

// All elements in one row: numbers, or codes under the one scale of the whole tensor.
ArrayRef slice_of(const Tensor& tensor);
// Elements [first, first + count).
ArrayRef slice_of(const Tensor& tensor, int64_t first, int64_t count);

// Bytes of a tensor, while it has memory, and its scales; 0 for null.
int64_t bytes_of(const std::shared_ptr<Tensor>& tensor);
// The one scale of all elements, or null.
std::shared_ptr<Tensor> scale_of(const std::shared_ptr<Tensor>& tensor);

} // namespace mp
