// SPDX-License-Identifier: Apache-2.0
#include "cuda/queue.hpp"

#include <initializer_list>
#include <new>

#include "cuda/error.hpp"

namespace mp::backends::cuda {

namespace {

Status asks_capture(cudaStream_t stream, bool& is_capturing) noexcept {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    const cudaError_t error = cudaStreamIsCapturing(stream, &capture);
    is_capturing = capture != cudaStreamCaptureStatusNone;
    return cuda_status(error, "earlier work on the queue failed");
}

} // namespace

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
    (void)cudaFree(workspace_); // takes null
    for (const Memory& memory : scratch_) {
        (void)cudaFree(memory.pointer);
        for (void* outgrown : memory.outgrown) {
            (void)cudaFree(outgrown);
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
    bool is_capturing = false;
    if (Status status = asks_capture(stream_, is_capturing); !status.ok() || is_capturing) {
        return status;
    }
    const cudaError_t error = cudaStreamQuery(stream_); // not allowed in a capture
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return {};
    }
    return cuda_status(error, "earlier work on the queue failed");
}

Status CudaQueue::refuse_capture(const char* what) noexcept {
    bool is_capturing = false;
    if (Status status = asks_capture(stream_, is_capturing); !status.ok()) {
        return status;
    }
    return is_capturing ? Status::error(
                              Code::bad_state,
                              "cuda: %s, but the queue's stream is being captured into a graph; do "
                              "it, or the same step once, before the capture begins",
                              what)
                        : Status();
}

Status CudaQueue::workspace(void** out) noexcept {
    const std::lock_guard lock(mutex_);
    if (workspace_ == nullptr) {
        if (Status status = refuse_capture("a first product needs a workspace"); !status.ok()) {
            return status;
        }
        if (const cudaError_t error = cudaMalloc(&workspace_, kWorkspaceBytes);
            error != cudaSuccess) {
            workspace_ = nullptr;
            return cuda_status(error, "allocating the 32 MiB workspace of a queue");
        }
    }
    *out = workspace_;
    return {};
}

// Grows to the largest request. cudaFree waits for the work that uses the old memory; what a graph uses is kept.
Status CudaQueue::scratch(Scratch which, std::size_t bytes, std::unique_lock<std::mutex>& lock,
                          void** out) noexcept {
    Memory& memory = scratch_[which == Scratch::operands ? 1 : 0];
    lock = std::unique_lock(memory.mutex);
    bool is_capturing = false;
    if (Status status = asks_capture(stream_, is_capturing); !status.ok()) {
        return status;
    }
    if (bytes > memory.bytes) {
        if (Status status = refuse_capture("a product needs more scratch memory than before");
            !status.ok()) {
            return status;
        }
        if (Status status = give_up(memory); !status.ok()) {
            return status;
        }
        if (const cudaError_t error = cudaMalloc(&memory.pointer, bytes); error != cudaSuccess) {
            memory.pointer = nullptr;
            return cuda_status(error, "allocating scratch memory of a queue");
        }
        memory.bytes = bytes;
    }
    memory.is_captured = memory.is_captured || is_capturing;
    *out = memory.pointer;
    return {};
}

Status CudaQueue::give_up(Memory& memory) noexcept {
    if (memory.is_captured) {
        try {
            memory.outgrown.push_back(memory.pointer);
        } catch (const std::bad_alloc&) {
            return Status::error(Code::out_of_memory, "cuda: no memory for a queue");
        }
    } else {
        (void)cudaFree(memory.pointer);
    }
    memory.pointer = nullptr;
    memory.bytes = 0;
    memory.is_captured = false;
    return {};
}

Status CudaQueue::kokkos_space(KokkosSpace** out) noexcept {
    const std::lock_guard lock(mutex_);
    if (!is_kokkos_ready_) {
        if (Status status = refuse_capture("a first kernel prepares the queue"); !status.ok()) {
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
