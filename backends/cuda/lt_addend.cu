// SPDX-License-Identifier: Apache-2.0
#include "cuda/lt_addend.cuh"

#include "cuda/launch.cuh"

namespace mp::backends::cuda {

namespace {

__global__ void __launch_bounds__(kThreads) addend_kernel(AddendWork work) {
    addend_thread(work, int64_t{blockIdx.x} * blockDim.x + threadIdx.x,
                  int64_t{gridDim.x} * blockDim.x);
}

} // namespace

Status write_addend(const CudaDevice& device, CudaQueue& queue, const AddendWork& work) noexcept {
    return launch("a bias before its product", addend_kernel, grid_for(device, addend_units(work)),
                  kThreads, queue, work);
}

} // namespace mp::backends::cuda
