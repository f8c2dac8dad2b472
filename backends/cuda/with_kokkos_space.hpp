// SPDX-License-Identifier: Apache-2.0
// How the kernels of Kokkos are launched on a queue; on the simulated device, too.
#pragma once

#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/queue.hpp"

namespace mp::backends::cuda {

// body(space) in the device's context. Kokkos itself only enqueues there.
template <class Body> Status with_kokkos_space(Device& device, Queue& queue, const Body& body) {
    const ContextGuard guard(static_cast<const CudaDevice&>(device).context());
    auto& cuda_queue = static_cast<CudaQueue&>(queue);
    if (Status status = cuda_queue.check_health(); !status.ok()) {
        return status;
    }
    KokkosSpace* space = nullptr;
    if (Status status = cuda_queue.kokkos_space(&space); !status.ok()) {
        return status;
    }
    try {
        body(*space);
    } catch (...) {
        (void)cudaGetLastError(); // the exception says what it was
        throw;
    }
    // Kokkos looks at it in debug builds only, and a kernel that was not launched leaves its results unwritten. The
    // runtime is this binary's own: no error of the program's is in it.
    return cuda_status(cudaGetLastError(), "launching a kernel of Kokkos");
}

} // namespace mp::backends::cuda
