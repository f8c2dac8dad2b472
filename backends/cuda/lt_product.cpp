// SPDX-License-Identifier: Apache-2.0
#include "cuda/lt_product.hpp"

#include <initializer_list>

#include "device/gemm_scales.hpp"

namespace mp::backends::cuda {

namespace {

// Answers that say nothing about the product: the library itself failed, and may do better when asked again. All others mean
// that it does not take it: newer releases say INVALID_VALUE of some that older ones called NOT_SUPPORTED.
bool is_failure(cublasStatus_t answer) noexcept {
    switch (answer) {
    case CUBLAS_STATUS_NOT_INITIALIZED:
    case CUBLAS_STATUS_ALLOC_FAILED:
    case CUBLAS_STATUS_MAPPING_ERROR:
    case CUBLAS_STATUS_EXECUTION_FAILED:
    case CUBLAS_STATUS_INTERNAL_ERROR:
        return true;
    default:
        return false;
    }
}

} // namespace

LtProduct::~LtProduct() { clear(); }

void LtProduct::clear() noexcept {
    const CublasLt& lt = cublaslt();
    for (cublasLtMatrixLayout_t* layout : {&a, &b, &c, &d}) {
        if (*layout != nullptr) {
            (void)lt.MatrixLayoutDestroy(*layout);
            *layout = nullptr;
        }
    }
    if (product_ != nullptr) {
        (void)lt.MatmulDescDestroy(product_);
        product_ = nullptr;
    }
}

Status LtProduct::describe(cublasOperation_t first, cublasOperation_t second) noexcept {
    clear(); // where an earlier attempt failed
    const cublasStatus_t made =
        cublaslt().MatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (made != CUBLAS_STATUS_SUCCESS) {
        product_ = nullptr;
        return cublas_status(made, "describing a product");
    }
    Status status = set(CUBLASLT_MATMUL_DESC_TRANSA, first);
    if (status.ok()) {
        status = set(CUBLASLT_MATMUL_DESC_TRANSB, second);
    }
    if (status.ok()) {
        status = set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(desc_));
    }
    if (status.ok() && desc_.dtype_bias != DType::none) {
        const auto type = static_cast<int32_t>(cuda_type(desc_.dtype_bias));
        status = set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
    }
    return status;
}

Status LtProduct::choose(const LtAlignments& alignments, LtAlgorithm& chosen) noexcept {
    if (chosen.is_known) {
        return {};
    }
    if (chosen.is_refused()) {
        return cublas_status(chosen.refusal, "cuBLASLt has no algorithm");
    }
    cublasLtMatmulPreference_t preference = nullptr;
    if (const cublasStatus_t made = cublaslt().MatmulPreferenceCreate(&preference);
        made != CUBLAS_STATUS_SUCCESS) {
        return cublas_status(made, "describing what algorithms to search");
    }
    const Status status = search(preference, alignments, chosen);
    (void)cublaslt().MatmulPreferenceDestroy(preference);
    return status;
}

Status LtProduct::search(cublasLtMatmulPreference_t preference, const LtAlignments& alignments,
                         LtAlgorithm& chosen) noexcept {
    const auto workspace = static_cast<uint64_t>(kMostWorkspaceBytes);
    Status status = set_attribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    // Parts of one sum are kept in fp32 and added in a fixed order: one rounding into D, and the
    // same bits every time.
    const uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (status.ok()) {
        status = set_attribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction);
    }
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        uint32_t bytes;
    } matrices[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments.a},
                    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments.b},
                    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments.c},
                    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments.d}};
    for (const auto& matrix : matrices) {
        if (status.ok()) {
            status = set_attribute(preference, matrix.attribute, matrix.bytes);
        }
    }
    if (!status.ok()) {
        return status;
    }
    cublasLtMatmulHeuristicResult_t best = {};
    int found = 0;
    const cublasStatus_t answer = cublaslt().MatmulAlgoGetHeuristic(handle_, product_, a, b, c, d,
                                                                    preference, 1, &best, &found);
    if (is_failure(answer)) {
        return cublas_status(answer, "asking cuBLASLt for an algorithm");
    }
    const cublasStatus_t refusal = answer != CUBLAS_STATUS_SUCCESS ? answer
                                   : found == 0                    ? CUBLAS_STATUS_NOT_SUPPORTED
                                                                   : best.state;
    chosen = {refusal == CUBLAS_STATUS_SUCCESS, refusal, best.algo, best.workspaceSize};
    return cublas_status(refusal, "cuBLASLt has no algorithm");
}

Status LtProduct::multiply(CudaQueue& queue, const LtAlgorithm& chosen,
                           const GemmBuffers& buffers) noexcept {
    ScratchMemory workspace(queue);
    if (Status status = workspace.take(chosen.workspace_bytes); !status.ok()) {
        return status;
    }
    // Where C is not read, D stands in for it, if it has the same layout: from CUDA 13.0 update 2 on C == D is refused
    // otherwise (its release notes), and beside fp8 results C has another type.
    const void* unread = is_fp8(desc_.dtype_d) ? nullptr : buffers.d;
    const void* source = desc_.beta != 0.0F ? buffers.c : unread;
    return cublas_status(cublaslt().Matmul(handle_, product_, &desc_.alpha, buffers.b, a, buffers.a,
                                           b, &desc_.beta, source, c, buffers.d, d,
                                           &chosen.algorithm, workspace.data(),
                                           chosen.workspace_bytes, queue.stream()),
                         "gemm");
}

} // namespace mp::backends::cuda
