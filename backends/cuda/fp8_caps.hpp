// SPDX-License-Identifier: Apache-2.0
// What cuBLASLt multiplies of fp8 (tables of cublasLtMatmul in the cuBLAS documentation).
#pragma once

#include "cuda/device.hpp"
#include "interface/ops.hpp"

namespace mp::backends::cuda {

// Why cuBLASLt is not asked for this product of codes; an empty reason when it is.
void explain_fp8_gemm(const CudaDevice& device, const GemmDesc& desc, Reason& reason) noexcept;

// The type a bias must have, and that of a C, which beside an fp8 result is not read.
DType fp8_bias_of(const GemmDesc& desc) noexcept;
DType fp8_c_of(const GemmDesc& desc) noexcept;

// One scale for each row of op(A), and one for each column of op(B).
bool has_vectors(const GemmDesc& desc) noexcept;

} // namespace mp::backends::cuda
