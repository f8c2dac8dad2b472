// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernel_image.hpp"

#include "cuda/error.hpp"

namespace mp::backends::cuda {

namespace {

// All kernels of the module are compiled for the same architectures, so one stands for all.
__global__ void probe() {}

} // namespace

const char* built_architectures() noexcept { return MP_CUDA_ARCHITECTURES; }

Status check_kernel_image(const char* device_name, int32_t compute_capability) noexcept {
    cudaFuncAttributes attributes = {};
    const cudaError_t error = cudaFuncGetAttributes(&attributes, probe);
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction) {
        (void)cudaGetLastError();
        return Status::error(Code::device_unavailable,
                             "cuda: %s has compute capability %d.%d, but this module was built for "
                             "%s: build it with CMAKE_CUDA_ARCHITECTURES=%d",
                             device_name, static_cast<int>(compute_capability / 10),
                             static_cast<int>(compute_capability % 10), built_architectures(),
                             static_cast<int>(compute_capability));
    }
    return cuda_status(error, "loading the module's kernels");
}

} // namespace mp::backends::cuda
