// SPDX-License-Identifier: Apache-2.0
// A product of scaled operands that cuBLASLt has no kernel for: both are written as wide numbers into scratch memory of the
// queue, code * scale_inv rounded once, and these are multiplied. fp8 becomes bf16, fp16 with a scale becomes fp32.
#pragma once

#include <memory>

#include "cuda/gemm_plan.hpp"

namespace mp::backends::cuda {

// Why not; an empty reason where it is done.
void explain_dequantized(const CudaDevice& device, const GemmDesc& desc, Reason& reason) noexcept;

class DequantizedPlan final : public Plan {
  public:
    // cublas_error where the heuristics know no algorithm. The device's context is current.
    static Status make(const CudaDevice& device, const GemmDesc& desc,
                       DequantizedPlan** out) noexcept;

    // From any thread. The device's context is current.
    Status run(CudaDevice& device, CudaQueue& queue, const GemmBuffers& buffers) noexcept;

  private:
    DequantizedPlan(const GemmDesc& desc, CublasLtPlan* product) noexcept
        : desc_(desc), product_(product) {}

    GemmDesc desc_;
    std::unique_ptr<CublasLtPlan> product_;
};

} // namespace mp::backends::cuda
