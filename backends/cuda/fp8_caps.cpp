// SPDX-License-Identifier: Apache-2.0
#include "cuda/fp8_caps.hpp"

#include <climits>
#include <initializer_list>

#include "cuda/cublaslt.hpp"
#include "device/gemm_scales.hpp"

namespace mp::backends::cuda {

namespace {

constexpr int64_t kMultiple = 16; // sizes are filled up to it
// Scales of rows and columns came with CUDA 12.9.
constexpr std::size_t kFirstOuterVectors = 120900;
constexpr bool kKnowsOuterVectors = CUBLAS_VERSION >= kFirstOuterVectors;

// One scale for each row of op(A), or column of op(B).
bool is_vector(const ScaleGrid& grid, bool lines_are_rows) {
    return lines_are_rows ? grid.block_rows == 1 && grid.block_columns == 0
                          : grid.block_rows == 0 && grid.block_columns == 1;
}

void explain_types(const GemmDesc& desc, Reason& reason) {
    if (!is_fp8(desc.dtype_a) || !is_fp8(desc.dtype_b)) {
        reason.set("fp8 x fp8 only, not %s x %s", dtype_name(desc.dtype_a),
                   dtype_name(desc.dtype_b));
    } else if (desc.dtype_a == DType::fp8_e5m2 && desc.dtype_b == DType::fp8_e5m2) {
        reason.set("no fp8_e5m2 x fp8_e5m2");
    } else if (desc.dtype_d == DType::fp8_e5m2 && desc.dtype_a == desc.dtype_b) {
        reason.set("no fp8_e4m3 x fp8_e4m3 into fp8_e5m2");
    }
}

void explain_scales(const CudaDevice& device, const GemmDesc& desc, Reason& reason) {
    for (const ScaleGrid& grid : {desc.scale_a, desc.scale_b}) {
        if (grid.exists() && grid.dtype != DType::fp32) {
            reason.set("scales of fp32 only, not %s", dtype_name(grid.dtype));
            return;
        }
    }
    if ((!desc.scale_a.exists() || desc.scale_a.is_one()) &&
        (!desc.scale_b.exists() || desc.scale_b.is_one())) {
        return;
    }
    if (!has_vectors(desc)) {
        reason.set("scales of both tensors, or of the rows of A and the columns of B, but not of "
                   "blocks or of one kind each");
    } else if (is_fp8(desc.dtype_d)) {
        reason.set("no fp8 results where rows and columns have scales");
    } else if (!kKnowsOuterVectors || device.compute_capability() / 10 != 9 ||
               (cublaslt().is_there() && cublaslt().GetVersion() < kFirstOuterVectors)) {
        reason.set("scales of rows and columns need compute capability 9.0 and CUDA 12.9");
    }
}

} // namespace

bool bias_comes_first(const GemmDesc& desc) noexcept {
    return desc.dtype_d == DType::fp32 && desc.dtype_bias != DType::none &&
           desc.dtype_bias != fp8_bias_of(desc);
}

DType fp8_bias_of(const GemmDesc& desc) noexcept {
    if (is_fp8(desc.dtype_d)) {
        return desc.dtype_bias == DType::fp16 ? DType::fp16 : DType::bf16;
    }
    return desc.dtype_d == DType::fp16 ? DType::fp16 : DType::bf16;
}
DType fp8_c_of(const GemmDesc& desc) noexcept {
    return is_fp8(desc.dtype_d) ? fp8_bias_of(desc) : desc.dtype_d;
}

bool has_vectors(const GemmDesc& desc) noexcept {
    return desc.scale_a.exists() && desc.scale_b.exists() &&
           is_vector(desc.scale_a, !desc.trans_a) && is_vector(desc.scale_b, desc.trans_b);
}

void explain_fp8_gemm(const CudaDevice& device, const GemmDesc& desc, Reason& reason) noexcept {
    explain_types(desc, reason);
    if (reason.empty() && device.compute_capability() < 89) {
        reason.set("fp8 needs compute capability 8.9");
    }
    if (reason.empty()) {
        explain_scales(device, desc, reason);
    }
    if (reason.empty() && desc.batch_count != 1) {
        reason.set("one product of fp8 at a time, not %lld",
                   static_cast<long long>(desc.batch_count));
    }
    for (const int64_t size : {desc.m, desc.n, desc.k}) {
        if (reason.empty() && size == 0) {
            reason.set("no empty products");
        }
    }
    for (const int64_t size : {desc.m, desc.n, desc.k, desc.lda, desc.ldb, desc.ldc, desc.ldd}) {
        if (reason.empty() && size > INT_MAX - kMultiple) {
            reason.set("sizes and strides of rows are below 2^31, not %lld",
                       static_cast<long long>(size));
        }
    }
    if (reason.empty() && !cublaslt().is_there()) {
        reason.set("%s", cublaslt().reason.c_str());
    }
}

} // namespace mp::backends::cuda
