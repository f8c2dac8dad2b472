// SPDX-License-Identifier: Apache-2.0
// optimizer_update: one fused step over all chunks, one block for each. The generic kernel takes any types; the
// rows of cuda/update_rows.def are the same code with the types known, so the bits are the same.
#include "cuda/optimizer_update.cuh"

#include "cuda/candidates.hpp"
#include "cuda/launch.cuh"

namespace mp::backends::cuda {

namespace {

template <class Layout> __global__ void __launch_bounds__(kThreads) update_kernel(UpdateWork work) {
    update_thread<Layout>(work, blockIdx.x, static_cast<int>(threadIdx.x),
                          static_cast<int>(blockDim.x));
}

bool supports(const Device& /*device*/, const OpDesc& op, Reason& reason) noexcept {
    return takes_update(static_cast<const OptimizerUpdateDesc&>(op), reason);
}

Status run(Device& device, Queue& queue, const OpDesc& op) noexcept {
    const auto& update = static_cast<const OptimizerUpdateDesc&>(op);
    if (update.table.chunk_count == 0) {
        return {};
    }
    const UpdateWork work = update_work(update);
    const ContextGuard guard = enter(device);
    return with_update_layout(update.table, work.stochastic, [&](auto layout) {
        return launch("optimizer_update", update_kernel<decltype(layout)>, update.table.chunk_count,
                      kThreads, queue, work);
    });
}

} // namespace

const Candidate kOptimizerUpdate = {kName, supports, run, nullptr, nullptr};

} // namespace mp::backends::cuda
