// SPDX-License-Identifier: Apache-2.0
// The three driver calls that Kokkos makes, looked up through the CUDA runtime when they are first called. Linking
// libcuda itself would keep the module from loading on a machine without an NVIDIA driver.
#include <cuda.h>
#include <cuda_runtime_api.h>

namespace {

template <typename Function> Function* driver_entry(const char* name, unsigned int cuda_version) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &entry, cuda_version, cudaEnableDefault, &found);
#else
    static_cast<void>(cuda_version);
    const cudaError_t error = cudaGetDriverEntryPoint(name, &entry, cudaEnableDefault, &found);
#endif
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) {
        return nullptr;
    }
    return reinterpret_cast<Function*>(entry);
}

} // namespace

// The headers rename some of these by macro (cuCtxPushCurrent becomes cuCtxPushCurrent_v2), so each definition has
// the very symbol that Kokkos refers to. The number is the CUDA version that brought this signature.
extern "C" {

CUresult CUDAAPI cuStreamGetCtx(CUstream stream, CUcontext* context) {
    static auto* const call = driver_entry<CUresult(CUstream, CUcontext*)>("cuStreamGetCtx", 9020);
    return call != nullptr ? call(stream, context) : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext context) {
    static auto* const call = driver_entry<CUresult(CUcontext)>("cuCtxPushCurrent", 4000);
    return call != nullptr ? call(context) : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
    static auto* const call = driver_entry<CUresult(CUdevice*)>("cuCtxGetDevice", 2000);
    return call != nullptr ? call(device) : CUDA_ERROR_NOT_INITIALIZED;
}

} // extern "C"
