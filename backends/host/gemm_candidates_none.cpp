// SPDX-License-Identifier: Apache-2.0
// Built without oneDNN: our own kernel is the only one.
#include "host/gemm_candidates.hpp"
#include "kokkos/host_ops.hpp"

namespace mp::backends::host {

CandidateList gemm_candidates(const Device& /*device*/) noexcept {
    return kokkos::host_candidates(OpKind::gemm);
}

void describe_gemm_ranking(const Device& /*device*/, TextLine<2048>& text) noexcept {
    text.set(R"({"first": "kokkos", "reason": "built without oneDNN"})");
}

} // namespace mp::backends::host
