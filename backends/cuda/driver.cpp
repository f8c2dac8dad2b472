// SPDX-License-Identifier: Apache-2.0
#include "cuda/driver.hpp"

#include "cuda/error.hpp"

namespace mp::backends::cuda {

namespace {

struct DriverTable {
    CUresult(CUDAAPI* get_current)(CUcontext*) = nullptr;
    CUresult(CUDAAPI* set_current)(CUcontext) = nullptr;
};

template <typename Function> void look_up(const char* name, Function*& out) noexcept {
    constexpr unsigned kSince = 4000; // the CUDA version that brought these two
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &entry, kSince, cudaEnableDefault, &found);
#else
    (void)kSince;
    const cudaError_t error = cudaGetDriverEntryPoint(name, &entry, cudaEnableDefault, &found);
#endif
    if (error == cudaSuccess && found == cudaDriverEntryPointSuccess) {
        out = reinterpret_cast<Function*>(entry);
    }
}

const DriverTable& driver() noexcept {
    static const DriverTable table = [] {
        DriverTable t;
        look_up("cuCtxGetCurrent", t.get_current);
        look_up("cuCtxSetCurrent", t.set_current);
        return t;
    }();
    return table;
}

// Why cudaGetDeviceCount failed, for the cases in which the reader can do something about it.
Status explain(cudaError_t error) noexcept {
    (void)cudaGetLastError();
    int driver_version = 0; // stays 0 where there is no driver
    int runtime_version = 0;
    (void)cudaDriverGetVersion(&driver_version);
    (void)cudaRuntimeGetVersion(&runtime_version);
    if (error == cudaErrorNoDevice) {
        return Status::error(Code::device_unavailable,
                             "cuda: there is an NVIDIA driver but no device it shows to this "
                             "process: check nvidia-smi and CUDA_VISIBLE_DEVICES, or use the host "
                             "device");
    }
    if (error == cudaErrorInitializationError) {
        return Status::error(Code::device_unavailable,
                             "cuda: the NVIDIA driver does not start in this process (%s); CUDA "
                             "cannot be used in a child made by fork() after the parent used it",
                             cudaGetErrorName(error));
    }
    if (driver_version == 0) {
        return Status::error(Code::device_unavailable,
                             "cuda: no NVIDIA driver: libcuda.so.1 was not found or cannot be used "
                             "(%s); install one that supports CUDA %d.%d or newer, or use the host "
                             "device",
                             cudaGetErrorName(error), runtime_version / 1000,
                             runtime_version % 1000 / 10);
    }
    if (error == cudaErrorInsufficientDriver) {
        return Status::error(Code::device_unavailable,
                             "cuda: the NVIDIA driver is too old: it supports CUDA %d.%d, this "
                             "module was built for CUDA %d.%d; install a newer driver, or use the "
                             "host device",
                             driver_version / 1000, driver_version % 1000 / 10,
                             runtime_version / 1000, runtime_version % 1000 / 10);
    }
    return Status::error(Code::device_unavailable, "cuda: the devices cannot be counted: %s (%s)",
                         cudaGetErrorString(error), cudaGetErrorName(error));
}

} // namespace

Status count_devices(int32_t* count) noexcept {
    *count = 0;
    int found = 0;
    const cudaError_t error = cudaGetDeviceCount(&found);
    if (error != cudaSuccess) {
        return explain(error);
    }
    if (found == 0) {
        return explain(cudaErrorNoDevice);
    }
    *count = found;
    return {};
}

Status open_primary_context(int32_t index, CUcontext* out) noexcept {
    *out = nullptr;
    const DriverTable& table = driver();
    if (table.get_current == nullptr || table.set_current == nullptr) {
        return Status::error(Code::device_unavailable,
                             "cuda: the driver lacks cuCtxGetCurrent or cuCtxSetCurrent");
    }
    CUcontext saved = nullptr;
    if (table.get_current(&saved) != CUDA_SUCCESS) {
        saved = nullptr; // the driver is not initialized yet, so there is nothing to restore
    }
    cudaError_t error = cudaSetDevice(index);
    if (error == cudaSuccess) {
        error = cudaFree(nullptr); // before CUDA 12, cudaSetDevice made no context
    }
    const CUresult result = table.get_current(out);
    (void)table.set_current(saved);
    if (error != cudaSuccess) {
        return cuda_status(error, "making the device's primary context");
    }
    if (result != CUDA_SUCCESS || *out == nullptr) {
        return Status::error(Code::cuda_error, "cuda: the device has no current context after "
                                               "cudaSetDevice");
    }
    return {};
}

ContextGuard::ContextGuard(CUcontext context) noexcept {
    const DriverTable& table = driver(); // complete, or there would be no context to guard
    if (table.get_current != nullptr && table.set_current != nullptr &&
        table.get_current(&saved_) == CUDA_SUCCESS && saved_ != context) {
        is_changed_ = table.set_current(context) == CUDA_SUCCESS;
    }
    is_relaxed_ = cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess;
    if (!is_relaxed_) {
        (void)cudaGetLastError();
    }
}

ContextGuard::~ContextGuard() {
    if (is_relaxed_ && cudaThreadExchangeStreamCaptureMode(&mode_) != cudaSuccess) {
        (void)cudaGetLastError();
    }
    const DriverTable& table = driver();
    if (is_changed_ && table.set_current != nullptr) {
        (void)table.set_current(saved_);
    }
}

} // namespace mp::backends::cuda
