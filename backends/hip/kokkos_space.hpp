// SPDX-License-Identifier: Apache-2.0
// A Kokkos execution space on one stream, behind an opaque type, and what runs there: only hipcc compiles Kokkos's headers
// for a GPU.
#pragma once

#include <hip/hip_runtime_api.h>

#include "device/backend.hpp"

namespace mp::backends::hip {

class KokkosSpace;

// Starts Kokkos if it has not been started. The stream's device is current.
Status make_kokkos_space(int32_t device, hipStream_t stream, KokkosSpace** out) noexcept;
// The stream is idle and its device current. Takes null.
void destroy_kokkos_space(KokkosSpace* space) noexcept;
// Ends Kokkos for good. Spaces that are left are lost.
void shut_down_kokkos() noexcept;

// One for each kind of operation: the kernels of core/kernels.
CandidateList kokkos_candidates(OpKind kind) noexcept;

} // namespace mp::backends::hip
