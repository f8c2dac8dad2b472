// SPDX-License-Identifier: Apache-2.0
// The Kokkos kernels on the host, on as many OpenMP threads as the device says, with the chunk
// bodies of the instruction set in use (host/isa).
#pragma once

#include "interface/backend.hpp"

namespace mp::backends::kokkos {

// One candidate for each kind, named "kokkos". They may be run from several threads at once, also
// on one device; Kokkos is started at the first run.
CandidateList host_candidates(OpKind kind) noexcept;

} // namespace mp::backends::kokkos
