// SPDX-License-Identifier: Apache-2.0
#include "cuda/error.hpp"

namespace mp::backends::cuda {

namespace {

Code code_of(cudaError_t error) noexcept {
    switch (error) {
    case cudaErrorMemoryAllocation:
        return Code::out_of_memory;
    case cudaErrorNoKernelImageForDevice:
        return Code::device_unavailable;
    default:
        return Code::cuda_error;
    }
}

} // namespace

Status cuda_status(cudaError_t error, const char* what) noexcept {
    if (error == cudaSuccess) {
        return {};
    }
    (void)cudaGetLastError();
    return Status::error(code_of(error), "cuda: %s: %s (%s)", what, cudaGetErrorString(error),
                         cudaGetErrorName(error));
}

} // namespace mp::backends::cuda
