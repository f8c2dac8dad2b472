// SPDX-License-Identifier: Apache-2.0
#include "hip/event.hpp"

#include <new>

#include "hip/device.hpp"
#include "hip/error.hpp"
#include "hip/queue.hpp"

namespace mp::backends::hip {

Status HipEvent::create(int32_t device, Event** out) noexcept {
    *out = nullptr;
    const DeviceGuard guard(device);
    hipEvent_t event = nullptr;
    if (Status status =
            hip_status(hipEventCreateWithFlags(&event, hipEventDisableTiming), "making an event");
        !status.ok()) {
        return status;
    }
    *out = new (std::nothrow) HipEvent(device, event);
    if (*out == nullptr) {
        (void)hipEventDestroy(event);
        return Status::error(Code::out_of_memory, "hip: no memory for an event");
    }
    return {};
}

HipEvent::~HipEvent() {
    const DeviceGuard guard(device_);
    (void)hipEventDestroy(event_); // goes when it has been reached
}

Status HipEvent::record(Queue& queue) noexcept {
    const DeviceGuard guard(device_);
    return hip_status(hipEventRecord(event_, static_cast<hipStream_t>(queue.native())),
                      "recording an event");
}

// Never recorded: there is nothing to wait for.
Status HipEvent::wait_in(Queue& queue) noexcept {
    const DeviceGuard guard(device_);
    return hip_status(hipStreamWaitEvent(static_cast<hipStream_t>(queue.native()), event_, 0),
                      "having a queue wait for an event");
}

Status HipEvent::sync() noexcept {
    const DeviceGuard guard(device_);
    return hip_status(hipEventSynchronize(event_), "work before an event failed");
}

Status HipEvent::test(bool* reached) noexcept {
    const DeviceGuard guard(device_);
    const hipError_t error = hipEventQuery(event_);
    *reached = error == hipSuccess;
    if (error == hipErrorNotReady) {
        (void)hipGetLastError(); // it is no failure
        return {};
    }
    return hip_status(error, "work before an event failed");
}

} // namespace mp::backends::hip
