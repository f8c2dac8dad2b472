// SPDX-License-Identifier: Apache-2.0
#include "cuda/device.hpp"

#include <cstdio>
#include <cstdlib>
#include <new>

#include "cuda/candidates.hpp"
#include "cuda/error.hpp"
#include "cuda/event.hpp"
#include "cuda/kernel_image.hpp"
#include "cuda/queue.hpp"

namespace mp::backends::cuda {

Status summarize(int32_t index, DeviceSummary* out) noexcept {
    cudaDeviceProp properties = {};
    if (const cudaError_t error = cudaGetDeviceProperties(&properties, index);
        error != cudaSuccess) {
        return cuda_status(error, "asking for the device's properties");
    }
    (void)std::snprintf(out->name, sizeof out->name, "%s", properties.name);
    out->memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
    return {};
}

Status CudaDevice::open(const DeviceConfig& config, Device** out) noexcept {
    *out = nullptr;
    int32_t count = 0;
    if (Status status = count_devices(&count); !status.ok()) {
        return status;
    }
    if (config.device_index < 0 || config.device_index >= count) {
        return Status::error(Code::device_unavailable,
                             "cuda: device %d was asked for, but there are %d, numbered from 0",
                             static_cast<int>(config.device_index), static_cast<int>(count));
    }
    auto* device = new (std::nothrow) CudaDevice(config);
    if (device == nullptr) {
        return Status::error(Code::out_of_memory, "cuda: no memory for a device");
    }
    if (Status status = device->initialize(); !status.ok()) {
        delete device;
        return status;
    }
    *out = device;
    return {};
}

Status CudaDevice::initialize() noexcept {
    if (Status status = open_primary_context(index_, &context_); !status.ok()) {
        return status;
    }
    const ContextGuard guard(context_);
    cudaDeviceProp properties = {};
    if (const cudaError_t error = cudaGetDeviceProperties(&properties, index_);
        error != cudaSuccess) {
        return cuda_status(error, "asking for the device's properties");
    }
    (void)std::snprintf(name_, sizeof name_, "%s", properties.name);
    multiprocessor_count_ = properties.multiProcessorCount;
    compute_capability_ = properties.major * 10 + properties.minor;
    memory_bytes_ = properties.totalGlobalMem;
    has_pool_ = properties.memoryPoolsSupported != 0;
    // Kokkos, which is compiled for the first of them, would end the process.
    if (const int oldest = std::atoi(built_architectures()); compute_capability_ < oldest) {
        return Status::error(
            Code::device_unavailable,
            "cuda: %s has compute capability %d.%d, older than what this module was "
            "built for (%s); build it with CMAKE_CUDA_ARCHITECTURES=%d",
            properties.name, static_cast<int>(compute_capability_ / 10),
            static_cast<int>(compute_capability_ % 10), built_architectures(),
            static_cast<int>(compute_capability_));
    }
    return check_kernel_image(properties.name, compute_capability_);
}

CudaDevice::~CudaDevice() {
    if (cublaslt_handle_ != nullptr) {
        const ContextGuard guard(context_);
        (void)cublaslt().Destroy(cublaslt_handle_);
    }
}

void CudaDevice::describe(Properties& to) const noexcept {
    int driver = 0;
    int runtime = 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    const auto version = [&to](const char* name, std::size_t major, std::size_t minor) {
        TextLine<32> text;
        text.set("%zu.%zu", major, minor);
        to.text(name, text.c_str());
    };
    const auto parts = [](int number, int of) { return static_cast<std::size_t>(number / of); };
    to.text("backend", "cuda");
    to.text("name", name_);
    version("instruction_set", parts(compute_capability_, 10), parts(compute_capability_ % 10, 1));
    to.text("built_for", built_architectures());
    to.number("multiprocessors", multiprocessor_count_);
    to.number("memory_bytes", static_cast<int64_t>(memory_bytes_));
    version("runtime", parts(runtime, 1000), parts(runtime % 1000, 10));
    version("driver", parts(driver, 1000), parts(driver % 1000, 10));
    if (cublaslt().is_there()) {
        const std::size_t number = cublaslt().GetVersion();
        version("cublaslt", number / 10000, number % 10000 / 100);
    } else {
        to.text("cublaslt", cublaslt().reason.c_str());
    }
}

Status CudaDevice::allocate(std::size_t bytes, void** out) noexcept {
    *out = nullptr;
    if (bytes == 0) {
        return {};
    }
    const ContextGuard guard(context_);
    return allocated(cudaMalloc(out, bytes), bytes, out);
}

Status CudaDevice::allocated(cudaError_t error, std::size_t bytes, void** out) const noexcept {
    if (error != cudaErrorMemoryAllocation) {
        return cuda_status(error, "allocating device memory");
    }
    (void)cudaGetLastError();
    *out = nullptr;
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    (void)cudaMemGetInfo(&free_bytes, &total_bytes);
    return Status::error(Code::out_of_memory,
                         "cuda: device %d has no %zu bytes: %zu of %zu are free",
                         static_cast<int>(index_), bytes, free_bytes, total_bytes);
}

void CudaDevice::release(void* pointer, std::size_t /*bytes*/) noexcept {
    if (pointer == nullptr) {
        return;
    }
    const ContextGuard guard(context_);
    if (cudaFree(pointer) != cudaSuccess) {
        (void)cudaGetLastError(); // an error of earlier work; sync() reports it
    }
}

Status CudaDevice::allocate_on(Queue& queue, std::size_t bytes, void** out) noexcept {
    if (!has_pool_ || bytes == 0) {
        return allocate(bytes, out);
    }
    *out = nullptr;
    const ContextGuard guard(context_);
    auto* const stream = static_cast<cudaStream_t>(queue.native());
    return allocated(cudaMallocAsync(out, bytes, stream), bytes, out);
}

void CudaDevice::release_on(Queue& queue, void* pointer, std::size_t bytes) noexcept {
    const ContextGuard guard(context_);
    auto* const stream = static_cast<cudaStream_t>(queue.native());
    if (pointer == nullptr || (has_pool_ && cudaFreeAsync(pointer, stream) == cudaSuccess)) {
        return;
    }
    (void)cudaGetLastError();
    release(pointer, bytes);
}

void CudaDevice::release_ordered(void* pointer, std::size_t bytes) noexcept {
    const ContextGuard guard(context_);
    if (cudaDeviceSynchronize() != cudaSuccess) {
        (void)cudaGetLastError();
    }
    release(pointer, bytes);
}

Status CudaDevice::create_queue(void* native, Queue** out) noexcept {
    CudaQueue* queue = nullptr;
    const Status status = CudaQueue::create(context_, native, &queue);
    *out = queue;
    return status;
}

Status CudaDevice::create_event(Event** out) noexcept { return CudaEvent::create(context_, out); }

// CUDA itself waits for copies to host memory that is not pinned.
bool CudaDevice::copy_waits(Queue& queue, const void* destination, const void* source,
                            std::size_t bytes, CopyKind kind) noexcept {
    auto& cuda_queue = static_cast<CudaQueue&>(queue);
    uint64_t number = 0;
    if (!cuda_queue.capture(&number).ok() || number != 0) {
        return false; // copy() refuses it
    }
    switch (kind) {
    case CopyKind::host_to_device: {
        const ContextGuard guard(context_);
        return !pinned_.holds(source, bytes) && cuda_queue.staging().waits_for(bytes);
    }
    case CopyKind::device_to_host:
        return !pinned_.holds(destination, bytes);
    case CopyKind::device_to_device:
        break;
    }
    return false;
}

Status CudaDevice::copy(Queue& queue, void* destination, const void* source, std::size_t bytes,
                        CopyKind kind) noexcept {
    if (bytes == 0) {
        return {};
    }
    const ContextGuard guard(context_);
    auto& cuda_queue = static_cast<CudaQueue&>(queue);
    cudaStream_t stream = cuda_queue.stream();
    switch (kind) {
    // In a graph these two would be repeated, from a buffer that holds something else by then, and into memory that may
    // be gone.
    case CopyKind::host_to_device:
        if (Status status = cuda_queue.refuse_capture("cuda: values are to be copied from the host "
                                                      "(a learning rate may be in device memory "
                                                      "instead: mp_optimizer_set_lr_tensor)");
            !status.ok()) {
            return status;
        }
        return pinned_.holds(source, bytes)
                   ? cuda_status(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyHostToDevice,
                                                 stream),
                                 "copying to the device")
                   : cuda_queue.staging().copy(stream, destination, source, bytes);
    case CopyKind::device_to_host:
        if (Status status = cuda_queue.refuse_capture("cuda: values are to be copied to the host");
            !status.ok()) {
            return status;
        }
        return cuda_status(
            cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDeviceToHost, stream),
            "copying to the host");
    case CopyKind::device_to_device:
        return cuda_status(
            cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDeviceToDevice, stream),
            "copying on the device");
    }
    return Status::error(Code::internal, "cuda: unknown kind of copy %d", static_cast<int>(kind));
}

Status CudaDevice::zero(Queue& queue, void* destination, std::size_t bytes) noexcept {
    if (bytes == 0) {
        return {};
    }
    const ContextGuard guard(context_);
    return cuda_status(
        cudaMemsetAsync(destination, 0, bytes, static_cast<CudaQueue&>(queue).stream()),
        "zeroing device memory");
}

Status CudaDevice::pin(void* host, std::size_t bytes) noexcept {
    const ContextGuard guard(context_);
    return pinned_.pin(host, bytes);
}

void CudaDevice::unpin(void* host, std::size_t /*bytes*/) noexcept {
    const ContextGuard guard(context_);
    pinned_.unpin(host);
}

Status CudaDevice::cublaslt_handle(cublasLtHandle_t* out) const noexcept {
    *out = nullptr;
    if (!cublaslt().is_there()) {
        return Status::error(Code::cublas_error, "cuda: %s", cublaslt().reason.c_str());
    }
    const std::lock_guard lock(mutex_);
    if (cublaslt_handle_ == nullptr) {
        const Status status =
            cublas_status(cublaslt().Create(&cublaslt_handle_), "making a cuBLASLt handle");
        if (!status.ok()) {
            cublaslt_handle_ = nullptr;
            return status;
        }
    }
    *out = cublaslt_handle_;
    return {};
}

} // namespace mp::backends::cuda
