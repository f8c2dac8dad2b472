// SPDX-License-Identifier: Apache-2.0
// A Kokkos execution space on one stream, behind an opaque type: files that are not compiled by nvcc
// cannot include Kokkos.
#pragma once

#include <cuda_runtime_api.h>

#include "status/status.hpp"

namespace mp::backends::cuda {

class KokkosSpace;

// Starts Kokkos if it has not been started. The stream's context is current.
Status make_kokkos_space(cudaStream_t stream, KokkosSpace** out) noexcept;
// The stream is idle and its context current. Takes null.
void destroy_kokkos_space(KokkosSpace* space) noexcept;
// Ends Kokkos for good. Spaces that are left are lost.
void shut_down_kokkos() noexcept;

} // namespace mp::backends::cuda
