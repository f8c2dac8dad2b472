// SPDX-License-Identifier: Apache-2.0
// The NVIDIA driver: whether there is one that serves this build, and the primary context of a
// device. Driver functions are asked of the CUDA runtime; libcuda is never linked.
#pragma once

#include <cstdint>
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "status/status.hpp"

namespace mp::backends::cuda {

// The number of devices, or device_unavailable with the reason and what to do. Makes no context.
Status count_devices(int32_t* count) noexcept;

// Makes the primary context of device `index` if the process has none yet, and leaves the calling
// thread's current context as it was. We never make a context of our own: the primary one is what
// the host program's CUDA runtime, and every library it uses, works in.
Status open_primary_context(int32_t index, CUcontext* out) noexcept;

// Makes a context current for a scope. Not by cudaSetDevice: going back with it would create a
// context on a device that the thread never used, and would replace a current one that is not
// primary. The calls of the scope disturb no capture into a graph that goes on elsewhere in the process: in the mode
// that is CUDA's default, memory or an event that any thread makes would end it. What belongs to the captured stream itself
// is refused before (Queue::refuse_capture).
class ContextGuard {
  public:
    explicit ContextGuard(CUcontext context) noexcept;
    ~ContextGuard();
    ContextGuard(const ContextGuard&) = delete;
    ContextGuard& operator=(const ContextGuard&) = delete;

  private:
    CUcontext saved_ = nullptr;
    bool is_changed_ = false;
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed; // then the thread's own
    bool is_relaxed_ = false;
};

} // namespace mp::backends::cuda
