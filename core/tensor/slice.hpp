// SPDX-License-Identifier: Apache-2.0
// TensorSlice: a tensor's elements, all of them or some, as one thing: memory, type, extent, and the scale of codes.
#pragma once

#include "tensor/tensor.hpp"

namespace mp {

// Elements of a tensor, all of them or a slice: numbers, or codes under the one scale of the whole tensor.
struct TensorSlice {
    TensorRef ref;
    float* scale_inv = nullptr; // null: plain numbers
    float* amax = nullptr;      // null: plain numbers
    numerics::ScalePolicy policy;
};

TensorSlice slice_of(const Tensor& tensor);
// Elements [first, first + count).
TensorSlice slice_of(const Tensor& tensor, int64_t first, int64_t count);

// Bytes of a tensor, while it has memory, and its scales; 0 for null.
int64_t bytes_of(const std::shared_ptr<Tensor>& tensor);
// The one scale of all elements, or null.
std::shared_ptr<Tensor> scale_of(const std::shared_ptr<Tensor>& tensor);

} // namespace mp
