// SPDX-License-Identifier: Apache-2.0
// A point in a stream's work.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/driver.hpp"
#include "device/backend.hpp"

namespace mp::backends::cuda {

class CudaEvent final : public Event {
  public:
    static Status create(CUcontext context, Event** out) noexcept;
    ~CudaEvent() override;

    Status record(Queue& queue) noexcept override;
    Status wait_in(Queue& queue) noexcept override;
    Status sync() noexcept override;
    Status test(bool* reached) noexcept override;

  private:
    CudaEvent(CUcontext context, cudaEvent_t event) noexcept : context_(context), event_(event) {}
    [[nodiscard]] Status refuse_captured() const noexcept;

    CUcontext context_;
    cudaEvent_t event_;
    bool is_captured_ = false; // by its last record()
};

} // namespace mp::backends::cuda
