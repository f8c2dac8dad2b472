// SPDX-License-Identifier: Apache-2.0
#include "cuda/event.hpp"

#include <new>

#include "cuda/error.hpp"
#include "cuda/queue.hpp"

namespace mp::backends::cuda {

Status CudaEvent::create(CUcontext context, Event** out) noexcept {
    *out = nullptr;
    const ContextGuard guard(context);
    cudaEvent_t event = nullptr;
    if (Status status = cuda_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                                    "making an event");
        !status.ok()) {
        return status;
    }
    *out = new (std::nothrow) CudaEvent(context, event);
    if (*out == nullptr) {
        (void)cudaEventDestroy(event);
        return Status::error(Code::out_of_memory, "cuda: no memory for an event");
    }
    return {};
}

CudaEvent::~CudaEvent() {
    const ContextGuard guard(context_);
    (void)cudaEventDestroy(event_); // goes when it has been reached
}

Status CudaEvent::record(Queue& queue) noexcept {
    const ContextGuard guard(context_);
    uint64_t capture = 0;
    if (Status status = queue.capture(&capture); !status.ok()) {
        return status;
    }
    is_captured_ = capture != 0;
    return cuda_status(cudaEventRecord(event_, static_cast<cudaStream_t>(queue.native())),
                       "recording an event");
}

// Never recorded: there is nothing to wait for.
Status CudaEvent::wait_in(Queue& queue) noexcept {
    const ContextGuard guard(context_);
    return cuda_status(cudaStreamWaitEvent(static_cast<cudaStream_t>(queue.native()), event_, 0),
                       "having a queue wait for an event");
}

// It stands for a point of each replay: CUDA has no answer for the host.
Status CudaEvent::refuse_captured() const noexcept {
    return is_captured_ ? Status::error(Code::bad_state,
                                        "cuda: the event was recorded while its queue's stream was "
                                        "captured into a graph; record it again, outside of one")
                        : Status();
}

Status CudaEvent::sync() noexcept {
    if (Status status = refuse_captured(); !status.ok()) {
        return status;
    }
    const ContextGuard guard(context_);
    return cuda_status(cudaEventSynchronize(event_), "work before an event failed");
}

Status CudaEvent::test(bool* reached) noexcept {
    *reached = false;
    if (Status status = refuse_captured(); !status.ok()) {
        return status;
    }
    const ContextGuard guard(context_);
    const cudaError_t error = cudaEventQuery(event_);
    *reached = error == cudaSuccess;
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError(); // it is no failure
        return {};
    }
    return cuda_status(error, "work before an event failed");
}

} // namespace mp::backends::cuda
