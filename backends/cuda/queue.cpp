// SPDX-License-Identifier: Apache-2.0
#include "cuda/queue.hpp"

#include <initializer_list>
#include <new>

#include "cuda/error.hpp"

namespace mp::backends::cuda {

Status CudaQueue::create(CUcontext context, void* native, CudaQueue** out) noexcept {
    *out = nullptr;
    const ContextGuard guard(context);
    auto stream = static_cast<cudaStream_t>(native);
    if (native == nullptr) {
        const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        if (error != cudaSuccess) {
            return cuda_status(error, "making a stream");
        }
    }
    *out = new (std::nothrow) CudaQueue(context, stream, native == nullptr);
    if (*out == nullptr) {
        if (native == nullptr) {
            (void)cudaStreamDestroy(stream);
        }
        return Status::error(Code::out_of_memory, "cuda: no memory for a queue");
    }
    return {};
}

CudaQueue::~CudaQueue() {
    const ContextGuard guard(context_);
    // What goes with the queue may be in use until then. On a device that has failed, Kokkos would end
    // the process instead of giving back what is lost anyway.
    if (cudaStreamSynchronize(stream_) == cudaSuccess) {
        destroy_kokkos_space(kokkos_space_);
    }
    staging_.close();
    for (void* memory : {workspace_, scratch_}) {
        if (memory != nullptr) {
            (void)cudaFree(memory);
        }
    }
    if (is_owned_) {
        (void)cudaStreamDestroy(stream_);
    }
    (void)cudaGetLastError();
}

Status CudaQueue::sync() noexcept {
    const ContextGuard guard(context_);
    return cuda_status(cudaStreamSynchronize(stream_), "work on the queue failed");
}

Status CudaQueue::check_health() noexcept {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaError_t error = cudaStreamIsCapturing(stream_, &capture);
    if (error == cudaSuccess && capture == cudaStreamCaptureStatusNone) {
        error = cudaStreamQuery(stream_); // not allowed in a capture
    }
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return {};
    }
    return cuda_status(error, "earlier work on the queue failed");
}

Status CudaQueue::workspace(void** out) noexcept {
    const std::lock_guard lock(mutex_);
    if (workspace_ == nullptr) {
        if (const cudaError_t error = cudaMalloc(&workspace_, kWorkspaceBytes);
            error != cudaSuccess) {
            workspace_ = nullptr;
            return cuda_status(error, "allocating the 32 MiB workspace of a queue");
        }
    }
    *out = workspace_;
    return {};
}

// Grows to the largest request. cudaFree waits for the work that uses the old memory.
Status CudaQueue::scratch(std::size_t bytes, std::unique_lock<std::mutex>& lock,
                          void** out) noexcept {
    lock = std::unique_lock(scratch_mutex_);
    if (bytes > scratch_bytes_) {
        if (scratch_ != nullptr) {
            (void)cudaFree(scratch_);
            scratch_ = nullptr;
            scratch_bytes_ = 0;
        }
        if (const cudaError_t error = cudaMalloc(&scratch_, bytes); error != cudaSuccess) {
            scratch_ = nullptr;
            return cuda_status(error, "allocating scratch memory of a queue");
        }
        scratch_bytes_ = bytes;
    }
    *out = scratch_;
    return {};
}

Status CudaQueue::kokkos_space(KokkosSpace** out) noexcept {
    const std::lock_guard lock(mutex_);
    if (kokkos_space_ == nullptr) {
        if (Status status = make_kokkos_space(stream_, &kokkos_space_); !status.ok()) {
            return status;
        }
    }
    *out = kokkos_space_;
    return {};
}

} // namespace mp::backends::cuda
