// SPDX-License-Identifier: Apache-2.0
// amax: the largest |x| of an array, as a bit pattern. Threads, then warps, then blocks.
#include "cuda/amax.cuh"

#include "cuda/candidates.hpp"
#include "cuda/launch.cuh"

namespace mp::backends::cuda {

namespace {

constexpr unsigned kWholeWarp = 0xffffffffU;
constexpr int kWarp = 32;

__global__ void __launch_bounds__(kThreads)
    amax_kernel(TensorRef source, bool is_aligned, uint32_t* result) {
    uint32_t largest =
        amax_thread(source, is_aligned, int64_t{blockIdx.x} * blockDim.x + threadIdx.x,
                    int64_t{gridDim.x} * blockDim.x);
    __shared__ uint32_t of_warp[kThreads / kWarp];
    largest = __reduce_max_sync(kWholeWarp, largest);
    if (threadIdx.x % kWarp == 0) {
        of_warp[threadIdx.x / kWarp] = largest;
    }
    __syncthreads();
    if (threadIdx.x < kWarp) {
        largest = threadIdx.x < kThreads / kWarp ? of_warp[threadIdx.x] : 0U;
        largest = __reduce_max_sync(kWholeWarp, largest);
        if (threadIdx.x == 0) {
            atomicMax(result, largest);
        }
    }
}

bool supports(const Device& /*device*/, const OpDesc& op, Reason& reason) noexcept {
    return takes_amax(static_cast<const AmaxDesc&>(op), reason);
}

Status run(Device& device, Queue& queue, const OpDesc& op) noexcept {
    const auto& amax = static_cast<const AmaxDesc&>(op);
    const ContextGuard guard = enter(device);
    // Zero is below every magnitude, and the answer for no elements.
    const cudaError_t error = cudaMemsetAsync(amax.result, 0, sizeof *amax.result,
                                              static_cast<CudaQueue&>(queue).stream());
    if (error != cudaSuccess || amax.source.count == 0) {
        return cuda_status(error, "amax");
    }
    const bool is_aligned = is_group_aligned(amax.source.data, dtype_size(amax.source.dtype));
    return launch("amax", amax_kernel, grid_for(device, (amax.source.count + kGroup - 1) / kGroup),
                  kThreads, queue, amax.source, is_aligned,
                  reinterpret_cast<uint32_t*>(amax.result));
}

} // namespace

const Candidate kAmax = {kName, supports, run, nullptr, nullptr};

} // namespace mp::backends::cuda
