// SPDX-License-Identifier: Apache-2.0
// CUDA's error numbers as a Status.
#pragma once

#include <cuda_runtime_api.h>

#include "status/status.hpp"

namespace mp::backends::cuda {

// Ok for cudaSuccess; otherwise says what failed, with CUDA's name and text for it, and clears the
// thread's last error so that nobody else takes it for theirs.
Status cuda_status(cudaError_t error, const char* what) noexcept;

} // namespace mp::backends::cuda
