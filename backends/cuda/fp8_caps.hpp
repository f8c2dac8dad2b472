// SPDX-License-Identifier: Apache-2.0
// What cuBLASLt multiplies of fp8 (tables of cublasLtMatmul in the cuBLAS documentation).
#pragma once

#include "cuda/device.hpp"
#include "device/ops.hpp"

namespace mp::backends::cuda {

// Why cuBLASLt is not asked for this product of codes; an empty reason when it is.
void explain_fp8_gemm(const CudaDevice& device, const GemmDesc& desc, Reason& reason) noexcept;

// Whether the bias is written into D, and the product added to it: of fp32 results only bf16 is added by cuBLASLt, and
// rounding to that would lose what fp32 is asked for.
bool bias_comes_first(const GemmDesc& desc) noexcept;
// The type a bias must have otherwise, and that of a C, which beside an fp8 result is not read.
DType fp8_bias_of(const GemmDesc& desc) noexcept;
DType fp8_c_of(const GemmDesc& desc) noexcept;

// One scale for each row of op(A), and one for each column of op(B).
bool has_vectors(const GemmDesc& desc) noexcept;

} // namespace mp::backends::cuda
