// SPDX-License-Identifier: Apache-2.0
// What kokkos_space.hpp hides.
#pragma once

#include <Kokkos_Core.hpp>

#include "cuda/kokkos_space.hpp"

namespace mp::backends::cuda {

class KokkosSpace {
  public:
    explicit KokkosSpace(cudaStream_t stream) : exec_(stream) {}
    [[nodiscard]] const Kokkos::Cuda& exec() const noexcept { return exec_; }

  private:
    Kokkos::Cuda exec_;
};

} // namespace mp::backends::cuda
