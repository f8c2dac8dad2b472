// SPDX-License-Identifier: Apache-2.0
#include "hip/queue.hpp"

#include <new>

#include "hip/device.hpp"
#include "hip/error.hpp"

namespace mp::backends::hip {

Status HipQueue::create(int32_t device, void* native, Queue** out) noexcept {
    *out = nullptr;
    const DeviceGuard guard(device);
    auto* stream = static_cast<hipStream_t>(native);
    if (stream == hipStreamPerThread) {
        return Status::error(Code::invalid_argument,
                             "hip: hipStreamPerThread is another stream in each thread, but a "
                             "queue is the same one in all; give a stream of hipStreamCreate");
    }
    if (native == nullptr) {
        if (Status status = hip_status(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking),
                                       "making a stream");
            !status.ok()) {
            return status;
        }
    }
    *out = new (std::nothrow) HipQueue(device, stream, native == nullptr);
    if (*out == nullptr) {
        if (native == nullptr) {
            (void)hipStreamDestroy(stream);
        }
        return Status::error(Code::out_of_memory, "hip: no memory for a queue");
    }
    return {};
}

HipQueue::~HipQueue() {
    const DeviceGuard guard(device_);
    // A caller's stream of which only events were recorded goes on. Kokkos throws where a device has failed, and what it would
    // give back is lost anyway.
    const bool waits = is_owned_ || has_work_ || kokkos_space_ != nullptr;
    if (waits && hipStreamSynchronize(stream_) == hipSuccess) {
        destroy_kokkos_space(kokkos_space_);
    }
    if (is_owned_) {
        (void)hipStreamDestroy(stream_);
    }
    (void)hipGetLastError();
}

Status HipQueue::sync() noexcept {
    const DeviceGuard guard(device_);
    return hip_status(hipStreamSynchronize(stream_), "work on the queue failed");
}

Status HipQueue::capture(uint64_t* number) noexcept {
    *number = 0;
    const DeviceGuard guard(device_);
    hipStreamCaptureStatus capture = hipStreamCaptureStatusNone;
    if (Status status = hip_status(hipStreamIsCapturing(stream_, &capture),
                                   "asking whether the queue's stream is being captured");
        !status.ok()) {
        return status;
    }
    if (capture != hipStreamCaptureStatusNone) {
        return Status::error(Code::unsupported,
                             "hip: the queue's stream is being captured into a graph, which this "
                             "backend cannot do; end the capture first");
    }
    return {};
}

Status HipQueue::check_health() noexcept {
    uint64_t number = 0;
    if (Status status = capture(&number); !status.ok()) {
        return status;
    }
    const hipError_t error = hipStreamQuery(stream_);
    if (error == hipErrorNotReady) {
        (void)hipGetLastError();
        return {};
    }
    return hip_status(error, "earlier work on the queue failed");
}

Status HipQueue::kokkos_space(KokkosSpace** out) noexcept {
    const std::lock_guard lock(mutex_);
    if (kokkos_space_ == nullptr) {
        if (Status status = make_kokkos_space(device_, stream_, &kokkos_space_); !status.ok()) {
            return status;
        }
    }
    *out = kokkos_space_;
    return {};
}

} // namespace mp::backends::hip
