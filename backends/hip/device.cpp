// SPDX-License-Identifier: Apache-2.0
#include "hip/device.hpp"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <new>

#include "hip/error.hpp"
#include "hip/event.hpp"
#include "hip/kokkos_space.hpp"
#include "hip/library.hpp"
#include "hip/queue.hpp"

namespace mp::backends::hip {

namespace {

// With a runtime before 5.6 Kokkos runs everything on the first device that a process opened (Kokkos 4.7,
// HIPInternal::initialize).
Status take_device([[maybe_unused]] int32_t index) noexcept {
#if HIP_VERSION_MAJOR < 5 || (HIP_VERSION_MAJOR == 5 && HIP_VERSION_MINOR < 6)
    static std::atomic<int32_t> first{-1};
    int32_t taken = -1;
    if (!first.compare_exchange_strong(taken, index) && taken != index) {
        return Status::error(
            Code::unsupported,
            "hip: this process has opened device %d, and with HIP %d.%d it can use "
            "one; start a process for device %d, or build with HIP 5.6 or newer",
            static_cast<int>(taken), HIP_VERSION_MAJOR, HIP_VERSION_MINOR, static_cast<int>(index));
    }
#endif
    return {};
}

// The code of this module is for one architecture; "gfx90a:sramecc+:xnack-" runs code for "gfx90a".
bool is_built_for(const char* architecture) noexcept {
    constexpr const char* kBuilt = MP_HIP_ARCHITECTURE;
    const std::size_t length = std::strcspn(architecture, ":");
    return length == std::strlen(kBuilt) && std::strncmp(architecture, kBuilt, length) == 0;
}

} // namespace

Status count_devices(int32_t* count) noexcept {
    *count = 0;
    if (!hip_library().is_usable) {
        return Status::error(Code::device_unavailable, "hip: %s; or use the host device",
                             hip_library().reason.c_str());
    }
    int found = 0;
    const hipError_t error = hipGetDeviceCount(&found);
    if (error != hipSuccess || found == 0) {
        (void)hipGetLastError();
        return Status::error(
            Code::device_unavailable,
            "hip: the runtime finds no AMD GPU (%s): check that the driver amdgpu is loaded, that "
            "this user may open /dev/kfd (group render), rocminfo and HIP_VISIBLE_DEVICES, or use "
            "the host device",
            hipGetErrorName(error == hipSuccess ? hipErrorNoDevice : error));
    }
    *count = found;
    return {};
}

DeviceGuard::DeviceGuard(int32_t index) noexcept {
    int current = -1;
    if (hipGetDevice(&current) == hipSuccess && current != index &&
        hipSetDevice(index) == hipSuccess) {
        saved_ = current;
    }
}

DeviceGuard::~DeviceGuard() {
    if (saved_ >= 0) {
        (void)hipSetDevice(saved_);
    }
}

Status summarize(int32_t index, DeviceSummary* out) noexcept {
    hipDeviceProp_t properties = {};
    if (const Status status = hip_status(hipGetDeviceProperties(&properties, index),
                                         "asking for the device's properties");
        !status.ok()) {
        return status;
    }
    (void)std::snprintf(out->name, sizeof out->name, "%s", properties.name);
    out->memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
    return {};
}

Status HipDevice::open(const DeviceConfig& config, Device** out) noexcept {
    *out = nullptr;
    int32_t count = 0;
    if (Status status = count_devices(&count); !status.ok()) {
        return status;
    }
    if (config.device_index < 0 || config.device_index >= count) {
        return Status::error(Code::device_unavailable,
                             "hip: device %d was asked for, but there are %d, numbered from 0",
                             static_cast<int>(config.device_index), static_cast<int>(count));
    }
    auto* device = new (std::nothrow) HipDevice(config.device_index);
    if (device == nullptr) {
        return Status::error(Code::out_of_memory, "hip: no memory for a device");
    }
    if (Status status = device->initialize(); !status.ok()) {
        delete device;
        return status;
    }
    *out = device;
    return {};
}

Status HipDevice::initialize() noexcept {
    if (Status status = hip_status(hipGetDeviceProperties(&properties_, index_),
                                   "asking for the device's properties");
        !status.ok()) {
        return status;
    }
    if (!is_built_for(properties_.gcnArchName)) {
        return Status::error(Code::device_unavailable,
                             "hip: device %d is a %s, but this module was built for %s: build it "
                             "with MIXEDPREC_HIP_ARCHITECTURE=%.*s",
                             static_cast<int>(index_), properties_.gcnArchName, MP_HIP_ARCHITECTURE,
                             static_cast<int>(std::strcspn(properties_.gcnArchName, ":")),
                             properties_.gcnArchName);
    }
    return take_device(index_);
}

void HipDevice::describe(Properties& to) const noexcept {
    int runtime = 0;
    (void)hipRuntimeGetVersion(&runtime);
    to.text("backend", "hip");
    to.text("name", properties_.name);
    to.text("instruction_set", properties_.gcnArchName);
    to.text("built_for", MP_HIP_ARCHITECTURE);
    to.number("multiprocessors", properties_.multiProcessorCount);
    to.number("memory_bytes", static_cast<int64_t>(properties_.totalGlobalMem));
    TextLine<32> version;
    version.set("%d.%d", runtime / 10000000, runtime / 100000 % 100);
    to.text("runtime", version.c_str());
}

DeviceCapability HipDevice::capability() const noexcept {
    DeviceCapability result;
    (void)std::snprintf(result.name, sizeof result.name, "%.*s", int{sizeof result.name - 1},
                        properties_.gcnArchName);
    return result;
}

Status HipDevice::allocate(std::size_t bytes, void** out) noexcept {
    *out = nullptr;
    if (bytes == 0) {
        return {};
    }
    const DeviceGuard guard(index_);
    const hipError_t error = hipMalloc(out, bytes);
    if (error != hipErrorOutOfMemory) {
        return hip_status(error, "allocating device memory");
    }
    (void)hipGetLastError();
    *out = nullptr;
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    (void)hipMemGetInfo(&free_bytes, &total_bytes);
    return Status::error(Code::out_of_memory,
                         "hip: device %d has no %zu bytes: %zu of %zu are free",
                         static_cast<int>(index_), bytes, free_bytes, total_bytes);
}

// Waits for the work that uses it.
void HipDevice::release(void* pointer, std::size_t /*bytes*/) noexcept {
    const DeviceGuard guard(index_);
    if (pointer != nullptr && hipFree(pointer) != hipSuccess) {
        (void)hipGetLastError(); // an error of earlier work; sync() reports it
    }
}

Status HipDevice::create_queue(void* native, Queue** out) noexcept {
    return HipQueue::create(index_, native, out);
}

Status HipDevice::create_event(Event** out) noexcept { return HipEvent::create(index_, out); }

Status HipDevice::copy(Queue& queue, void* destination, const void* source, std::size_t bytes,
                       CopyKind kind) noexcept {
    if (bytes == 0) {
        return {};
    }
    const DeviceGuard guard(index_);
    auto& hip_queue = static_cast<HipQueue&>(queue);
    if (Status status = hip_queue.check_health(); !status.ok()) {
        return status;
    }
    hipStream_t stream = hip_queue.stream();
    switch (kind) {
    // Waits, because the caller may reuse its memory now.
    case CopyKind::host_to_device: {
        const hipError_t error =
            hipMemcpyAsync(destination, source, bytes, hipMemcpyHostToDevice, stream);
        const hipError_t waited = hipStreamSynchronize(stream);
        return hip_status(error != hipSuccess ? error : waited, "copying to the device");
    }
    case CopyKind::device_to_host:
        return hip_status(hipMemcpyAsync(destination, source, bytes, hipMemcpyDeviceToHost, stream),
                          "copying to the host");
    case CopyKind::device_to_device:
        return hip_status(
            hipMemcpyAsync(destination, source, bytes, hipMemcpyDeviceToDevice, stream),
            "copying on the device");
    }
    return Status::error(Code::internal, "hip: unknown kind of copy %d", static_cast<int>(kind));
}

Status HipDevice::zero(Queue& queue, void* destination, std::size_t bytes) noexcept {
    if (bytes == 0) {
        return {};
    }
    const DeviceGuard guard(index_);
    auto& hip_queue = static_cast<HipQueue&>(queue);
    if (Status status = hip_queue.check_health(); !status.ok()) {
        return status;
    }
    return hip_status(hipMemsetAsync(destination, 0, bytes, hip_queue.stream()),
                      "zeroing device memory");
}

Status HipDevice::pin(void* host, std::size_t bytes) noexcept {
    const DeviceGuard guard(index_);
    return hip_status(hipHostRegister(host, bytes, hipHostRegisterPortable), "pinning host memory");
}

void HipDevice::unpin(void* host, std::size_t /*bytes*/) noexcept {
    const DeviceGuard guard(index_);
    (void)hipHostUnregister(host);
}

CandidateList HipDevice::candidates(OpKind kind) const noexcept { return kokkos_candidates(kind); }

} // namespace mp::backends::hip
