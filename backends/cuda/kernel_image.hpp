// SPDX-License-Identifier: Apache-2.0
// Whether this build has code for a device.
#pragma once

#include <cstdint>

#include "status/status.hpp"

namespace mp::backends::cuda {

// The values of CMAKE_CUDA_ARCHITECTURES, as one line.
const char* built_architectures() noexcept;

// The device's context is current. device_unavailable, with what the build has, where it has none.
Status check_kernel_image(const char* device_name, int32_t compute_capability) noexcept;

} // namespace mp::backends::cuda
