// SPDX-License-Identifier: Apache-2.0
// The order of the candidates of each operation.
#include "cuda/candidates.hpp"

#include "cuda/device.hpp"

namespace mp::backends::cuda {

Status convert(Device& device, Queue& queue, const TensorRef& from, const TensorRef& to) noexcept {
    CastDesc cast{};
    cast.kind = OpKind::cast;
    cast.source = from;
    cast.destination = to;
    Reason reason;
    return kCast.supports(device, cast, reason)
               ? kCast.run(device, queue, cast)
               : Status::error(Code::unsupported, "cuda: converting a vector: %s", reason.c_str());
}

CandidateList CudaDevice::candidates(OpKind kind) const noexcept {
    static const Candidate cast[] = {kCast, *kokkos_candidates(OpKind::cast).items};
    static const Candidate amax[] = {kAmax, *kokkos_candidates(OpKind::amax).items};
    static const Candidate gemm[] = {kGemmCublasLt, kGemmCublasLtFp8, kGemmDequantized,
                                     *kokkos_candidates(OpKind::gemm).items};
    static const Candidate update[] = {kOptimizerUpdate,
                                       *kokkos_candidates(OpKind::optimizer_update).items};
    switch (kind) {
    case OpKind::cast:
        return {cast, 2};
    case OpKind::amax:
        return {amax, 2};
    case OpKind::gemm:
        return {gemm, 4};
    case OpKind::optimizer_update:
        return {update, 2};
    default:
        return kokkos_candidates(kind);
    }
}

} // namespace mp::backends::cuda
