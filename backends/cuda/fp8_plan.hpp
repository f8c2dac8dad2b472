// SPDX-License-Identifier: Apache-2.0
// A product of fp8 codes as cuBLASLt sees it. It multiplies them along k only (op(A) as stored, B stored transposed),
// with k and n multiples of 16 and all rows at multiples of 16 bytes: what is not so is copied into scratch memory
// of the queue first, codes of 0 filling up, and a result that is not so is copied out of it. A bias of another type than
// it adds is rounded to that first, but for fp32 results: there it is written into D, and the product added to it.
#pragma once

#include <mutex>

#include "cuda/device.hpp"
#include "cuda/lt_product.hpp"

namespace mp::backends::cuda {

class Fp8Plan final : public Plan {
  public:
    // cublas_error where the heuristics know no algorithm. The device's context is current.
    static Status make(const CudaDevice& device, const GemmDesc& desc, Fp8Plan** out) noexcept;

    // From any thread. The device's context is current.
    Status run(CudaDevice& device, CudaQueue& queue, const GemmBuffers& buffers) noexcept;

  private:
    // Which operands are in scratch memory; part of what an algorithm is chosen for.
    enum Copy : uint32_t { kCopyA = 1, kCopyB = 2, kCopyD = 4, kCopies = 8 };

    // Offsets of the scratch memory's parts.
    struct ScratchOffsets {
        std::size_t a = 0, b = 0, d = 0, bias = 0, scale_a = 0, scale_b = 0, amax = 0, bytes = 0;
    };

    Fp8Plan(cublasLtHandle_t handle, const GemmDesc& desc) noexcept;
    Status describe() noexcept;
    Status describe_product() noexcept;
    [[nodiscard]] ScratchOffsets offsets_of(uint32_t copies) const noexcept;
    [[nodiscard]] uint32_t copies_for(const GemmBuffers& buffers) const noexcept;
    Status set_strides(uint32_t copies) noexcept;
    Status set_pointers(const GemmBuffers& buffers) noexcept;
    struct Usable {
        Status status;
        uint32_t copies;
    };
    Usable choose_usable(uint32_t copies) noexcept;
    Status choose(uint32_t copies) noexcept;
    Status bring_in(CudaDevice& device, CudaQueue& queue, uint32_t copies, char* scratch,
                    GemmBuffers& buffers) noexcept;
    Status bring_vectors(CudaDevice& device, CudaQueue& queue, const ScratchOffsets& parts,
                         char* scratch, GemmBuffers& buffers) const noexcept;
    Status bring_addend(CudaDevice& device, CudaQueue& queue, uint32_t copies,
                        GemmBuffers& buffers) const noexcept;
    Status multiply(CudaQueue& queue, uint32_t copies, const GemmBuffers& buffers) noexcept;
    Status take_out(CudaQueue& queue, uint32_t copies, const GemmBuffers& from,
                    const GemmBuffers& to) noexcept;

    GemmDesc given_;
    GemmDesc desc_; // with the bias, or the C in its place, that cuBLASLt takes
    bool bias_is_first_;
    LtProduct product_;
    int64_t padded_n_;
    int64_t padded_k_;
    std::mutex
        mutex_; // of the descriptors, which hold the pointers of one call, and of what follows
    LtAlgorithm algorithms_[kCopies];
};

} // namespace mp::backends::cuda
