// SPDX-License-Identifier: Apache-2.0
// One product's descriptors, the search for an algorithm, and the call: what both plans over cuBLASLt share. Not locked.
#pragma once

#include "cuda/lt_describe.hpp"
#include "cuda/queue.hpp"

namespace mp::backends::cuda {

struct LtAlgorithm {
    bool is_known = false;
    // What the heuristics said instead of one; success where they were not asked.
    cublasStatus_t refusal = CUBLAS_STATUS_SUCCESS;
    cublasLtMatmulAlgo_t algorithm = {};
    std::size_t workspace_bytes = 0;

    [[nodiscard]] bool is_refused() const noexcept { return refusal != CUBLAS_STATUS_SUCCESS; }
};

// Multiples of the addresses of A, B, C and D, in bytes.
struct LtAlignments {
    uint32_t a, b, c, d;
};

class LtProduct {
  public:
    // Of an algorithm: what cuBLAS itself takes on Hopper.
    static constexpr std::size_t kMostWorkspaceBytes = std::size_t{32} << 20;

    LtProduct(cublasLtHandle_t handle, const GemmDesc& desc) noexcept
        : handle_(handle), desc_(desc) {}
    ~LtProduct();
    LtProduct(const LtProduct&) = delete;
    LtProduct& operator=(const LtProduct&) = delete;

    // Whether the operands are transposed, the epilogue and the bias's type. Before anything else.
    Status describe(cublasOperation_t first, cublasOperation_t second) noexcept;
    template <typename T>
    Status set(cublasLtMatmulDescAttributes_t attribute, const T& value) noexcept {
        return set_attribute(product_, attribute, value);
    }
    // Asks the heuristics once. cublas_error where they know no algorithm, which `chosen` keeps, and where the library
    // fails, which is forgotten.
    Status choose(const LtAlignments& alignments, LtAlgorithm& chosen) noexcept;
    // Our A and B change places: see GemmDesc and the plans' describe().
    Status multiply(CudaQueue& queue, const LtAlgorithm& chosen,
                    const GemmBuffers& buffers) noexcept;

    cublasLtMatrixLayout_t a = nullptr; // of our B
    cublasLtMatrixLayout_t b = nullptr; // of our A
    cublasLtMatrixLayout_t c = nullptr;
    cublasLtMatrixLayout_t d = nullptr;

  private:
    void clear() noexcept;
    Status search(cublasLtMatmulPreference_t preference, const LtAlignments& alignments,
                  LtAlgorithm& chosen) noexcept;

    cublasLtHandle_t handle_; // the device's
    const GemmDesc& desc_;    // the plan's
    cublasLtMatmulDesc_t product_ = nullptr;
};

} // namespace mp::backends::cuda
