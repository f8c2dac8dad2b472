// SPDX-License-Identifier: Apache-2.0
#include "cuda/codes.cuh"

#include "cuda/launch.cuh"

namespace mp::backends::cuda {

namespace {

__global__ void __launch_bounds__(kThreads) codes_kernel(CodesWork work) {
    codes_thread(work, int64_t{blockIdx.x} * blockDim.x + threadIdx.x,
                 int64_t{gridDim.x} * blockDim.x);
}

// Work on one stream is done in its order, so nothing else changes *amax meanwhile.
__global__ void raise_amax_kernel(float* amax, const float* found) {
    raise_amax_thread(amax, found);
}

} // namespace

Status arrange_codes(const CudaDevice& device, CudaQueue& queue, const CodesWork& work) noexcept {
    return launch("arranging fp8 codes", codes_kernel, grid_for(device, codes_units(work)),
                  kThreads, queue, work);
}

Status raise_amax(CudaQueue& queue, float* amax, const float* found) noexcept {
    return launch("amax of an fp8 result", raise_amax_kernel, 1, 1, queue, amax, found);
}

} // namespace mp::backends::cuda
