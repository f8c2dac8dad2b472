// SPDX-License-Identifier: Apache-2.0
// HIP's error numbers as a Status.
#pragma once

#include <hip/hip_runtime_api.h>

#include "status/status.hpp"

namespace mp::backends::hip {

// Ok for hipSuccess; otherwise says what failed, with HIP's name and text for it, and clears the thread's last error.
inline Status hip_status(hipError_t error, const char* what) noexcept {
    if (error == hipSuccess) {
        return {};
    }
    (void)hipGetLastError();
    const Code code = error == hipErrorOutOfMemory      ? Code::out_of_memory
                      : error == hipErrorNoBinaryForGpu ? Code::device_unavailable
                                                        : Code::device_error;
    return Status::error(code, "hip: %s: %s (%s)", what, hipGetErrorString(error),
                         hipGetErrorName(error));
}

} // namespace mp::backends::hip
