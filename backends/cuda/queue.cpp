// SPDX-License-Identifier: Apache-2.0
#include "cuda/queue.hpp"

#include <new>

#include "cuda/error.hpp"

namespace mp::backends::cuda {

Status CudaQueue::create(CUcontext context, void* native, CudaQueue** out) noexcept {
    *out = nullptr;
    const ContextGuard guard(context);
    auto stream = static_cast<cudaStream_t>(native);
    if (stream == cudaStreamPerThread) {
        return Status::error(Code::invalid_argument,
                             "cuda: cudaStreamPerThread is another stream in each thread, but a "
                             "queue is the same one in all; give a stream of cudaStreamCreate");
    }
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
    // What goes with the queue may be in use until then. A caller's stream of which only events were recorded goes on. On a
    // device that has failed, Kokkos would end the process instead of giving back what is lost anyway.
    const bool waits = is_owned_ || has_work_ || kokkos_space_ != nullptr;
    if (waits && cudaStreamSynchronize(stream_) == cudaSuccess) {
        destroy_kokkos_space(kokkos_space_);
    }
    staging_.close();
    if (is_owned_) {
        (void)cudaStreamDestroy(stream_);
    }
    (void)cudaGetLastError();
}

Status CudaQueue::sync() noexcept {
    const ContextGuard guard(context_);
    if (Status status = refuse_capture("cuda: the queue is to be waited for"); !status.ok()) {
        return status;
    }
    return cuda_status(cudaStreamSynchronize(stream_), "work on the queue failed");
}

Status CudaQueue::capture(uint64_t* number) noexcept {
    const ContextGuard guard(context_);
    *number = 0;
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    const cudaError_t error = cudaStreamGetCaptureInfo(stream_, &capture, &id);
    if (error != cudaSuccess) {
        return cuda_status(error, "earlier work on the queue failed");
    }
    if (capture == cudaStreamCaptureStatusInvalidated) {
        return Status::error(Code::bad_state,
                             "cuda: the capture of the queue's stream has become invalid through "
                             "a call that no capture allows; end it with cudaStreamEndCapture");
    }
    *number = capture == cudaStreamCaptureStatusActive ? id : 0;
    return {};
}

Status CudaQueue::check_health() noexcept {
    uint64_t number = 0;
    if (Status status = capture(&number); !status.ok() || number != 0) {
        return status;
    }
    const cudaError_t error = cudaStreamQuery(stream_); // not allowed in a capture
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return {};
    }
    return cuda_status(error, "earlier work on the queue failed");
}

Status CudaQueue::kokkos_space(KokkosSpace** out) noexcept {
    const std::lock_guard lock(mutex_);
    if (!is_kokkos_ready_) {
        if (Status status = refuse_capture("cuda: a first kernel prepares the queue");
            !status.ok()) {
            return status;
        }
        if (kokkos_space_ == nullptr) {
            if (Status status = make_kokkos_space(stream_, &kokkos_space_); !status.ok()) {
                return status;
            }
        }
        if (const cudaError_t error = cudaStreamSynchronize(cudaStreamLegacy);
            error != cudaSuccess) {
            return cuda_status(error, "waiting for what prepares the queue");
        }
        is_kokkos_ready_ = true;
    }
    *out = kokkos_space_;
    return {};
}

} // namespace mp::backends::cuda
