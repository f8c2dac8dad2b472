// SPDX-License-Identifier: Apache-2.0
// A product as cuBLASLt sees it: descriptors, and the algorithm its heuristics chose. Where they know none for the
// buffers as they lie, the product is made in scratch memory of the queue, with all rows at multiples of 16 elements.
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
    Status run(CudaDevice& device, CudaQueue& queue, const GemmBuffers& buffers) noexcept;

  private:
    // What is promised about the buffers' addresses, in bytes. Ours are aligned to 256; 16 is what
    // wide loads and the tensor memory accelerator need; the last stands for one element.
    enum Alignment { k256, k16, kElement, kAlignments };

    // The product with its matrices in one place: where the caller has them, or packed in scratch memory.
    struct Form {
        Form(cublasLtHandle_t handle, const GemmDesc& d) noexcept
            : desc(d), product(handle, desc) {}
        Status describe() noexcept;
        Status set_bias_pointer(const void* bias) noexcept;
        // Asks once for each alignment.
        Status choose(Alignment alignment) noexcept;

        GemmDesc desc;
        LtProduct product;
        bool is_described = false;
        LtAlgorithm algorithms[kAlignments];
    };
    // What one run does with its buffers.
    struct Use {
        Form* form = nullptr;
        Alignment alignment = k256;
    };
    // Offsets of the scratch memory's parts.
    struct ScratchOffsets {
        std::size_t a = 0, b = 0, d = 0, bias = 0, bytes = 0;
    };

    CublasLtPlan(cublasLtHandle_t handle, const GemmDesc& desc) noexcept;
    [[nodiscard]] bool converts_bias() const noexcept;
    [[nodiscard]] Alignment alignment_of(const GemmBuffers& buffers) const noexcept;
    Status choose(const GemmBuffers& buffers, Use& use) noexcept;
    [[nodiscard]] ScratchOffsets offsets_of(const Use& use) const noexcept;
    Status bring_in(CudaDevice& device, CudaQueue& queue, const Use& use, char* scratch,
                    GemmBuffers& buffers) const noexcept;
    Status take_out(CudaQueue& queue, const void* from, void* to) const noexcept;

    DType given_bias_;
    std::mutex
        mutex_; // of the products, which hold the bias pointer of one call, and of their algorithms
    Form direct_;
    Form packed_;
};

} // namespace mp::backends::cuda
