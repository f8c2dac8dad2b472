// SPDX-License-Identifier: Apache-2.0
// What a product is added to where cuBLASLt does not take the bias as it is: beta * C + bias, in the product's own D.
#pragma once

#include <cstdint>

#include "cuda/device.hpp"
#include "cuda/queue.hpp"

namespace mp::backends::cuda {

// d[row][column] = beta * c[row][column] + bias[column], two roundings; without C where beta is 0. Beyond `columns` there is
// no C.
struct AddendWork {
    const float* bias = nullptr; // aligned to 16, padded_columns of them
    const float* c = nullptr;
    int64_t c_stride = 0;
    float beta = 0.0F;
    int64_t rows = 0;
    int64_t columns = 0;
    float* d = nullptr; // aligned to 16, rows at multiples of 16 bytes; may be c
    int64_t d_stride = 0;
    int64_t padded_columns = 0; // a multiple of 4
};

Status write_addend(const CudaDevice& device, CudaQueue& queue, const AddendWork& work) noexcept;

} // namespace mp::backends::cuda
