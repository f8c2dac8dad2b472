// SPDX-License-Identifier: Apache-2.0
// The candidate "kokkos" of every operation: the kernels of core/kernels on Kokkos::Cuda, on the
// queue's stream. Second where there is a hand-written kernel or cuBLASLt, else the only one.
#include "cuda/candidates.hpp"
#include "cuda/kokkos_space.cuh"
#include "cuda/launch.cuh"
#include "kokkos/candidates.hpp"

namespace mp::backends::cuda {

namespace {

struct CudaAccess {
    static constexpr bool kNeedsAlignment = true;

    // In the device's context; Kokkos itself only enqueues here.
    template <class Body> static Status with_space(Device& device, Queue& queue, const Body& body) {
        const ContextGuard guard = enter(device);
        auto& cuda_queue = static_cast<CudaQueue&>(queue);
        if (Status status = cuda_queue.check_health(); !status.ok()) {
            return status;
        }
        KokkosSpace* space = nullptr;
        if (Status status = cuda_queue.kokkos_space(&space); !status.ok()) {
            return status;
        }
        try {
            body(space->exec(), kernels::InlineOps{});
        } catch (...) {
            (void)cudaGetLastError(); // the exception says what it was
            throw;
        }
        return {};
    }
};

} // namespace

CandidateList kokkos_candidates(OpKind kind) noexcept {
    return kokkos::Candidates<CudaAccess>::of(kind);
}

} // namespace mp::backends::cuda
