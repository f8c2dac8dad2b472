// SPDX-License-Identifier: Apache-2.0
// What each generation of GPU multiplies fast. Emulated support does not count: before 8.0 there are no bf16
// products, whatever a library's own query says.
#pragma once

#include <cstdio>

#include "device/backend.hpp"

namespace mp::backends::cuda {

// `number` is 10 x major + minor of the compute capability.
inline DeviceCapability capability_of(int32_t number) noexcept {
    DeviceCapability capability;
    (void)std::snprintf(capability.name, sizeof(capability.name), "compute capability %d.%d",
                        static_cast<int>(number / 10), static_cast<int>(number % 10));
    capability.has_fast_fp16 = number >= 70;
    capability.has_fast_bf16 = number >= 80;
    capability.has_fast_fp8 = number >= 89;
    return capability;
}

} // namespace mp::backends::cuda
