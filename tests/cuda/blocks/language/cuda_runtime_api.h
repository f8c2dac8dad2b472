// SPDX-License-Identifier: Apache-2.0
// What of CUDA's run time the files of kernels call, on the machine for blocks. Launches are over when they return.
#pragma once

#include <cstddef>

// NOLINTBEGIN(readability-identifier-naming): CUDA's names
struct CUstream_st;
using cudaStream_t = CUstream_st*;

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorLaunchFailure = 719,
};

cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream);
// NOLINTEND(readability-identifier-naming)
