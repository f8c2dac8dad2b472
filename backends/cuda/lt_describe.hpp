// SPDX-License-Identifier: Apache-2.0
// Matrices and products in the words of cuBLASLt.
#pragma once

#include "cuda/cublaslt.hpp"
#include "device/ops.hpp"

namespace mp::backends::cuda {

inline cudaDataType_t cuda_type(DType dtype) noexcept {
    switch (dtype) {
    case DType::fp16:
        return CUDA_R_16F;
    case DType::bf16:
        return CUDA_R_16BF;
    case DType::fp8_e4m3:
        return CUDA_R_8F_E4M3;
    case DType::fp8_e5m2:
        return CUDA_R_8F_E5M2;
    default:
        return CUDA_R_32F; // nothing else is asked for
    }
}

// Of an operand as it is stored.
struct Extent {
    int64_t rows, columns;
};
inline Extent stored_a(const GemmDesc& d) noexcept {
    return d.trans_a ? Extent{d.k, d.m} : Extent{d.m, d.k};
}
inline Extent stored_b(const GemmDesc& d) noexcept {
    return d.trans_b ? Extent{d.n, d.k} : Extent{d.k, d.n};
}

// A row-major matrix is the transpose of the column-major one in the same memory.
struct Stored {
    DType dtype;
    int64_t rows;
    int64_t columns;
    int64_t leading;
    int64_t batch_stride;
};

inline Status make_layout(const Stored& x, int64_t batch_count,
                          cublasLtMatrixLayout_t* out) noexcept {
    const CublasLt& lt = cublaslt();
    cublasStatus_t status =
        lt.MatrixLayoutCreate(out, cuda_type(x.dtype), static_cast<uint64_t>(x.columns),
                              static_cast<uint64_t>(x.rows), x.leading);
    if (status != CUBLAS_STATUS_SUCCESS) {
        *out = nullptr;
        return cublas_status(status, "describing a matrix");
    }
    if (batch_count > 1) {
        const auto count = static_cast<int32_t>(batch_count);
        status = lt.MatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                             sizeof count);
        if (status == CUBLAS_STATUS_SUCCESS) {
            status = lt.MatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                 &x.batch_stride, sizeof x.batch_stride);
        }
    }
    return cublas_status(status, "describing a batch of matrices");
}

template <typename T>
Status set_attribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                     const T& value) noexcept {
    return cublas_status(cublaslt().MatmulDescSetAttribute(desc, attribute, &value, sizeof value),
                         "describing a product");
}

template <typename T>
Status set_attribute(cublasLtMatmulPreference_t preference,
                     cublasLtMatmulPreferenceAttributes_t attribute, const T& value) noexcept {
    return cublas_status(
        cublaslt().MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
        "describing what algorithms to search");
}

inline uint32_t epilogue_of(const GemmDesc& desc) noexcept {
    const bool has_bias = desc.dtype_bias != DType::none;
    if (desc.gelu) { // the tanh form, as mixedprec/gemm.h asks for
        return has_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    }
    return has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

} // namespace mp::backends::cuda
