// SPDX-License-Identifier: Apache-2.0
// A stream of the machine for blocks: nothing is ever pending.
#pragma once

#include <cuda_runtime_api.h>

#include "device/backend.hpp"

namespace mp::backends::cuda {

class CudaQueue final : public Queue {
  public:
    Status sync() noexcept override { return {}; }
    [[nodiscard]] cudaStream_t stream() const noexcept { return nullptr; }
};

} // namespace mp::backends::cuda
