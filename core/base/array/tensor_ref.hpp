// SPDX-License-Identifier: Apache-2.0
// TensorRef: a view of dense elements in some device's memory. Owns nothing.
#pragma once

#include <cstdint>

#include "dtype/dtype.hpp"

namespace mp {

struct TensorRef {
    void* data = nullptr;
    int64_t count = 0; // elements
    DType dtype = DType::none;
};

} // namespace mp
