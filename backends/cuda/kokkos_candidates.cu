// SPDX-License-Identifier: Apache-2.0
// The candidate "kokkos" of every operation: the kernels of core/kernels on Kokkos::Cuda, on the
// queue's stream. Second where there is a hand-written kernel or cuBLASLt, else the only one.
#include "cuda/candidates.hpp"
#include "cuda/kokkos_space.cuh"
#include "cuda/with_kokkos_space.hpp"
#include "kokkos/candidates.hpp"

namespace mp::backends::cuda {

namespace {

struct CudaAccess {
    static bool takes_gemm(const GemmDesc& op, Reason& reason) noexcept {
        return takes_naive_gemm(op, reason);
    }

    template <class Body> static Status with_space(Device& device, Queue& queue, const Body& body) {
        return with_kokkos_space(device, queue,
                                 [&body](const KokkosSpace& space) { body(space.exec()); });
    }
};

} // namespace

CandidateList kokkos_candidates(OpKind kind) noexcept {
    return kokkos::Candidates<CudaAccess>::of(kind);
}

} // namespace mp::backends::cuda
