// SPDX-License-Identifier: Apache-2.0
// A product as cuBLASLt sees it: descriptors, and the algorithm its heuristics chose.
#pragma once

#include <mutex>

#include "cuda/device.hpp"
#include "cuda/lt_product.hpp"

namespace mp::backends::cuda {

// Why cuBLASLt is not asked for this product, from its types, sizes and gemm_caps.def alone; an
// empty reason when it is.
void explain_gemm(const CudaDevice& device, const GemmDesc& desc, Reason& reason) noexcept;

class CublasLtPlan final : public Plan {
  public:
    // cublas_error where the heuristics know no algorithm. The device's context is current.
    static Status make(const CudaDevice& device, const GemmDesc& desc, CublasLtPlan** out) noexcept;

    // From any thread. The device's context is current.
    Status run(CudaQueue& queue, const GemmBuffers& buffers) noexcept;

  private:
    // What is promised about the buffers' addresses, in bytes. Ours are aligned to 256; 16 is what
    // wide loads and the tensor memory accelerator need; the last stands for one element.
    enum Alignment { k256, k16, kElement, kAlignments };

    CublasLtPlan(cublasLtHandle_t handle, const GemmDesc& desc) noexcept
        : desc_(desc), product_(handle, desc_) {}
    Status describe() noexcept;
    Status set_bias_pointer(const void* bias) noexcept;
    [[nodiscard]] Alignment alignment_of(const GemmBuffers& buffers) const noexcept;
    Status choose(Alignment alignment) noexcept;
    [[nodiscard]] uint32_t bytes_of(Alignment alignment, DType dtype) const noexcept;

    GemmDesc desc_;
    LtProduct product_;
    std::mutex mutex_; // of product_, which holds the bias pointer of one call, and of what follows
    LtAlgorithm algorithms_[kAlignments];
};

} // namespace mp::backends::cuda
