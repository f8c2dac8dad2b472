// SPDX-License-Identifier: Apache-2.0
// cast: destination[i] = round(source[i]) between any two floating types. One kernel for all pairs:
// the switches on the types are the same for a whole grid and cost little beside the memory.
#include "cuda/cast.cuh"

#include "cuda/candidates.hpp"
#include "cuda/launch.cuh"

namespace mp::backends::cuda {

namespace {

__global__ void __launch_bounds__(kThreads) cast_kernel(CastWork work) {
    cast_thread(work, int64_t{blockIdx.x} * blockDim.x + threadIdx.x,
                int64_t{gridDim.x} * blockDim.x);
}

bool supports(const Device& /*device*/, const OpDesc& op, Reason& reason) noexcept {
    return takes_cast(static_cast<const CastDesc&>(op), reason);
}

Status run(Device& device, Queue& queue, const OpDesc& op) noexcept {
    const CastWork work = cast_work(static_cast<const CastDesc&>(op));
    if (work.count == 0) {
        return {};
    }
    const ContextGuard guard = enter(device);
    return launch("cast", cast_kernel, grid_for(device, (work.count + kGroup - 1) / kGroup),
                  kThreads, queue, work);
}

} // namespace

const Candidate kCast = {kName, supports, run, nullptr, nullptr};

} // namespace mp::backends::cuda
