// SPDX-License-Identifier: Apache-2.0
// Kernel launches that say by name what failed.
#pragma once

#include <cstdint>
#include <cuda_runtime.h>
#include <utility>

#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/queue.hpp"

namespace mp::backends::cuda {

inline constexpr int kThreads = 256;

// Not <<<>>>: its error has to be fetched from where the host program's own errors are kept too.
template <typename... Parameters, typename... Arguments>
Status launch(const char* what, void (*kernel)(Parameters...), int64_t blocks, int threads,
              Queue& queue, Arguments&&... arguments) noexcept {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.stream = static_cast<CudaQueue&>(queue).stream();
    return cuda_status(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...),
                       what);
}

// Blocks for a grid-stride loop over `items`: enough to fill the device a few times over, so that
// blocks which end late do not leave much of it idle.
inline int64_t grid_for(const Device& device, int64_t items) noexcept {
    constexpr int64_t kBlocksPerMultiprocessor = 2048 / kThreads * 4;
    const int64_t wanted = (items + kThreads - 1) / kThreads;
    const int64_t most =
        static_cast<const CudaDevice&>(device).multiprocessor_count() * kBlocksPerMultiprocessor;
    return wanted < most ? wanted : most;
}

inline ContextGuard enter(const Device& device) noexcept {
    return ContextGuard(static_cast<const CudaDevice&>(device).context());
}

} // namespace mp::backends::cuda
