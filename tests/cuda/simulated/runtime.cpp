// SPDX-License-Identifier: Apache-2.0
// Devices, contexts and errors of the simulated runtime, and what tests reach it by.
#include "runtime.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "state.hpp"

namespace mp::simulated {

namespace {

CUctx_st primary[kDevices] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
thread_local CUcontext current = nullptr;
thread_local cudaError_t last_error = cudaSuccess;

bool fault_is_due() noexcept { return control().fail_in > 0 && --control().fail_in == 0; }

CUresult CUDAAPI get_current(CUcontext* out) {
    *out = current;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI set_current(CUcontext context) {
    current = context;
    return CUDA_SUCCESS;
}

// A test program that looks at no counter must not pass over a mistake either.
struct Verdict {
    ~Verdict() {
        if (control().misuse != 0 || control().wrong_context != 0) {
            (void)std::fprintf(stderr, "simulated CUDA: %lld misuses, %lld wrong contexts\n",
                               static_cast<long long>(control().misuse),
                               static_cast<long long>(control().wrong_context));
            std::_Exit(1);
        }
    }
};
const Verdict verdict;

} // namespace

Control& control() noexcept {
    static Control instance;
    return instance;
}

std::recursive_mutex& mutex() noexcept {
    static std::recursive_mutex instance;
    return instance;
}

CUctx_st* primary_context(int device) noexcept { return &primary[device]; }
CUcontext current_context() noexcept { return current; }

cudaError_t fail(cudaError_t error) noexcept {
    last_error = error;
    return error;
}

cudaError_t begin(const CUstream_st* stream) noexcept {
    const bool is_primary = std::any_of(std::begin(primary), std::end(primary),
                                        [](const CUctx_st& each) { return current == &each; });
    if (!is_primary || (stream != nullptr && stream->context != current)) {
        ++control().wrong_context;
    }
    if (fault_is_due()) {
        return fail(control().fail_with);
    }
    return cudaSuccess;
}

cudaError_t outcome() noexcept {
    return control().broken == cudaSuccess ? cudaSuccess : fail(control().broken);
}

} // namespace mp::simulated

using namespace mp::simulated;

#pragma GCC visibility push(default)
extern "C" {

Control* mp_simulated_control() { return &control(); }
CUcontext mp_simulated_context() { return current; }
void mp_simulated_set_context(CUcontext c) { current = c; }
cudaError_t mp_simulated_last_error() { return last_error; }

cudaError_t cudaDriverGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
    *count = kDevices;
    return cudaSuccess;
}

const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorStreamCaptureUnsupported:
        return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
        return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureImplicit:
        return "cudaErrorStreamCaptureImplicit";
    case cudaErrorCapturedEvent:
        return "cudaErrorCapturedEvent";
    default:
        return "cudaErrorSimulated";
    }
}

const char* cudaGetErrorString(cudaError_t) { return "simulated"; }

cudaError_t cudaGetLastError() {
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** entry, unsigned int,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
    *found = cudaDriverEntryPointSuccess;
    if (std::strcmp(symbol, "cuCtxGetCurrent") == 0) {
        *entry = reinterpret_cast<void*>(&get_current);
    } else if (std::strcmp(symbol, "cuCtxSetCurrent") == 0) {
        *entry = reinterpret_cast<void*>(&set_current);
    } else {
        *found = cudaDriverEntryPointSymbolNotFound;
    }
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    if (fault_is_due()) {
        return fail(control().fail_with);
    }
    current = &primary[device];
    return cudaSuccess;
}

// Needs no context.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    if (fault_is_due()) {
        return fail(control().fail_with);
    }
    *properties = {};
    (void)std::snprintf(properties->name, sizeof properties->name, "Simulated \"GPU\" %d", device);
    properties->major = control().capability / 10;
    properties->minor = control().capability % 10;
    properties->multiProcessorCount = 3;
    properties->memoryPoolsSupported = control().has_pool ? 1 : 0;
    std::size_t free_bytes = 0;
    return cudaMemGetInfo(&free_bytes, &properties->totalGlobalMem);
}

} // extern "C"
#pragma GCC visibility pop
