// SPDX-License-Identifier: Apache-2.0
// The candidates of this backend: hand-written kernels and cuBLASLt, and Kokkos for everything.
#pragma once

#include "device/backend.hpp"

namespace mp::backends::cuda {

inline constexpr const char* kName = "cuda";

extern const Candidate kCast;
extern const Candidate kAmax;
extern const Candidate kOptimizerUpdate;
extern const Candidate kGemmCublasLt;
extern const Candidate kGemmCublasLtFp8;
extern const Candidate kGemmDequantized;

// Elements into another type, to nearest, by kCast. The device's context is current.
Status convert(Device& device, Queue& queue, const TensorRef& from, const TensorRef& to) noexcept;

// Whether a product is small enough for the candidate "kokkos".
bool takes_naive_gemm(const GemmDesc& op, Reason& reason) noexcept;

// One for each kind of operation.
CandidateList kokkos_candidates(OpKind kind) noexcept;

} // namespace mp::backends::cuda
