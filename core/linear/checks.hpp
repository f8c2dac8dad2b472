// SPDX-License-Identifier: Apache-2.0
// What every call of a layer asks of its tensors.
#pragma once

#include "tensor/tensor.hpp"

namespace mp::linear {

// `may_be_quantized`: weights and their gradients.
inline void check_dtype(const Tensor& tensor, const char* name, bool may_be_quantized = false) {
    if (tensor.scales() != nullptr) {
        if (!may_be_quantized) {
            fail(Code::invalid_dtype, "linear: %s is quantized; it must be fp32, fp16 or bf16",
                 name);
        }
        return;
    }
    if (!is_high_precision(tensor.dtype())) {
        fail(Code::invalid_dtype, "linear: %s is %s; it must be fp32, fp16 or bf16", name,
             dtype_name(tensor.dtype()));
    }
}

inline void check_shape_is(const Tensor& tensor, const Shape& wanted, const char* name) {
    if (tensor.shape() != wanted) {
        fail(Code::invalid_shape, "linear: %s is %s; it must be %s", name,
             tensor.shape().text().c_str(), wanted.text().c_str());
    }
}

} // namespace mp::linear
