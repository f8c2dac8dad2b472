// SPDX-License-Identifier: Apache-2.0
// The candidates of this backend: hand-written kernels and cuBLASLt, and Kokkos for everything.
#pragma once

#include "interface/backend.hpp"

namespace mp::backends::cuda {

inline constexpr const char* kName = "cuda";

extern const Candidate kCast;
extern const Candidate kAmax;
extern const Candidate kAdamw;
extern const Candidate kGemmCublasLt;
extern const Candidate kGemmCublasLtFp8;

// One for each kind of operation.
CandidateList kokkos_candidates(OpKind kind) noexcept;

} // namespace mp::backends::cuda
