// SPDX-License-Identifier: Apache-2.0
// adamw: one fused step over all chunks, one block for each. The generic kernel takes any types; the
// rows of cuda/adamw_rows.def are the same code with the types known, so the bits are the same.
#include "cuda/adamw.cuh"

#include "cuda/candidates.hpp"
#include "cuda/launch.cuh"

namespace mp::backends::cuda {

namespace {

template <class Layout> __global__ void __launch_bounds__(kThreads) adamw_kernel(AdamwWork work) {
    adamw_thread<Layout>(work, blockIdx.x, static_cast<int>(threadIdx.x),
                         static_cast<int>(blockDim.x));
}

bool supports(const Device& /*device*/, const OpDesc& op, Reason& reason) noexcept {
    return takes_adamw(static_cast<const AdamwDesc&>(op), reason);
}

Status run(Device& device, Queue& queue, const OpDesc& op) noexcept {
    const auto& adamw = static_cast<const AdamwDesc&>(op);
    if (adamw.table.chunk_count == 0) {
        return {};
    }
    const AdamwWork work = adamw_work(adamw);
    const ContextGuard guard = enter(device);
    return with_adamw_layout(adamw.table, work.stochastic, [&](auto layout) {
        return launch("adamw", adamw_kernel<decltype(layout)>, adamw.table.chunk_count, kThreads,
                      queue, work);
    });
}

} // namespace

const Candidate kAdamw = {kName, supports, run, nullptr, nullptr};

} // namespace mp::backends::cuda
