// SPDX-License-Identifier: Apache-2.0
#include "tensor/slice.hpp"

namespace mp {

ArrayRef slice_of(const Tensor& tensor) { return slice_of(tensor, 0, tensor.count()); }

ArrayRef slice_of(const Tensor& tensor, int64_t first, int64_t count) {
    auto* bytes = static_cast<unsigned char*>(tensor.data());
    void* data = bytes == nullptr ? nullptr : bytes + bytes_of(tensor.dtype(), first);
    const TensorRef elements = {data, count, tensor.dtype()};
    if (tensor.scales() == nullptr) {
        return plain_array(elements);
    }
    const TensorScales& scales = *tensor.scales();
    ArrayRef slice = scaled_array(elements, static_cast<float*>(scales.scale_inv->data()));
    slice.amax = static_cast<float*>(scales.amax->data());
    slice.format.policy = scales.format.policy;
    return slice;
}

int64_t bytes_of(const std::shared_ptr<Tensor>& tensor) {
    if (tensor == nullptr) {
        return 0;
    }
    const std::size_t scales =
        tensor->scales() == nullptr ? 0 : tensor->scales()->scale_inv->bytes();
    return static_cast<int64_t>((tensor->has_memory() ? tensor->bytes() : 0) + scales);
}

std::shared_ptr<Tensor> scale_of(const std::shared_ptr<Tensor>& tensor) {
    return tensor != nullptr && tensor->scales() != nullptr ? tensor->scales()->scale_inv : nullptr;
}

} // namespace mp
