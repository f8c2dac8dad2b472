// SPDX-License-Identifier: Apache-2.0
// Bringing 8-bit codes into the order and size that cuBLASLt multiplies: along k, in whole 16 bytes.
#pragma once

#include <cstdint>

#include "cuda/device.hpp"
#include "cuda/queue.hpp"

namespace mp::backends::cuda {

// destination[row][column] is the code of that place, 0 beyond rows x columns. `transposed`: the source holds
// one column in each row.
struct CodesWork {
    const uint8_t* source = nullptr;
    int64_t stride = 0;
    bool transposed = false;
    int64_t rows = 0;
    int64_t columns = 0;
    uint8_t* destination = nullptr; // aligned to 16
    int64_t padded_rows = 0;
    int64_t padded_columns = 0; // a multiple of 16
};

Status arrange_codes(const CudaDevice& device, CudaQueue& queue, const CodesWork& work) noexcept;

// *amax = the larger one, as bit patterns of |x|.
Status raise_amax(CudaQueue& queue, float* amax, const float* found) noexcept;

} // namespace mp::backends::cuda
