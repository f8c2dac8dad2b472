// SPDX-License-Identifier: Apache-2.0
// Stands in for libamdhip64: devices whose memory is the host's and whose kernels do nothing. It says what it was asked to
// launch, and fails where an environment variable tells it to.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include <hip/hip_runtime_api.h>

namespace {

int number(const char* name, int otherwise) {
    const char* text = std::getenv(name);
    return text != nullptr ? std::atoi(text) : otherwise;
}

std::map<const void*, std::string> kernels;
std::string last_kernel;
void* last_stream = nullptr;
hipError_t last_error = hipSuccess;
int current_device = 0;

struct Launch {
    dim3 grid;
    dim3 block;
    size_t shared = 0;
    hipStream_t stream = nullptr;
} pushed;

hipError_t allocate(void** pointer, size_t bytes) {
    *pointer =
        bytes > (size_t{1} << 40) ? nullptr : std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    return last_error = *pointer != nullptr ? hipSuccess : hipErrorOutOfMemory;
}

hipError_t copy(void* destination, const void* source, size_t bytes) {
    std::memcpy(destination, source, bytes);
    return hipSuccess;
}

} // namespace

#define MP_SHOWN extern "C" __attribute__((visibility("default")))

// For the test.
MP_SHOWN int mp_fake_kernel_count();
MP_SHOWN const char* mp_fake_last_kernel();
MP_SHOWN void* mp_fake_last_stream();
int mp_fake_kernel_count() { return static_cast<int>(kernels.size()); }
const char* mp_fake_last_kernel() { return last_kernel.c_str(); }
void* mp_fake_last_stream() { return last_stream; }

// What hipcc's code calls.
// NOLINTBEGIN(readability-identifier-naming)
MP_SHOWN void** __hipRegisterFatBinary(const void* image);
MP_SHOWN void __hipRegisterFunction(void**, const void* host, char*, const char* name, unsigned,
                                    void*, void*, void*, void*, int*);
MP_SHOWN void __hipRegisterVar(void**, void*, char*, char*, int, size_t, int, int);
void** __hipRegisterFatBinary(const void* image) {
    return static_cast<void**>(const_cast<void*>(image));
}
void __hipRegisterFunction(void** /*image*/, const void* host, char* /*text*/, const char* name,
                           unsigned /*threads*/, void* /*thread*/, void* /*block*/, void* /*size*/,
                           void* /*grid*/, int* /*warp*/) {
    kernels[host] = name;
}
void __hipRegisterVar(void** /*image*/, void* /*host*/, char* /*text*/, char* /*name*/, int, size_t,
                      int, int) {}
// NOLINTEND(readability-identifier-naming)
hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared, hipStream_t stream) {
    pushed = {grid, block, shared, stream};
    return hipSuccess;
}
hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, hipStream_t* stream) {
    *grid = pushed.grid;
    *block = pushed.block;
    *shared = pushed.shared;
    *stream = pushed.stream;
    return hipSuccess;
}
hipError_t hipLaunchKernel(const void* function, dim3 /*grid*/, dim3 /*block*/,
                           void** /*arguments*/, size_t /*shared*/, hipStream_t stream) {
    last_kernel = kernels.count(function) != 0 ? kernels[function] : "not registered";
    last_stream = stream;
    return last_error = static_cast<hipError_t>(number("MP_FAKE_HIP_LAUNCH_ERROR", hipSuccess));
}
hipError_t hipFuncGetAttributes(hipFuncAttributes* attributes, const void* function) {
    *attributes = {};
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32;
    return last_error = kernels.count(function) != 0 ? hipSuccess : hipErrorInvalidDeviceFunction;
}
hipError_t hipMemcpyToSymbol(const void*, const void*, size_t, size_t, hipMemcpyKind) {
    return hipSuccess; // device memory that nothing runs on
}

hipError_t hipRuntimeGetVersion(int* version) {
    *version = number("MP_FAKE_HIP_VERSION", HIP_VERSION);
    return hipSuccess;
}
hipError_t hipGetDeviceCount(int* count) {
    *count = number("MP_FAKE_HIP_DEVICES", 2);
    return last_error = *count > 0 ? hipSuccess : hipErrorNoDevice;
}
hipError_t hipGetDevice(int* device) {
    *device = current_device;
    return hipSuccess;
}
hipError_t hipSetDevice(int device) {
    current_device = device;
    return hipSuccess;
}
hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int /*device*/) {
    *properties = {};
    const char* architecture = std::getenv("MP_FAKE_HIP_ARCHITECTURE");
    std::snprintf(properties->gcnArchName, sizeof properties->gcnArchName, "%s",
                  architecture != nullptr ? architecture : "gfx90a:sramecc+:xnack-");
    std::snprintf(properties->name, sizeof properties->name, "A \"fake\" device");
    properties->totalGlobalMem = size_t{1} << 30;
    properties->major = 9;
    properties->warpSize = 64;
    properties->multiProcessorCount = 104;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->maxThreadsPerBlock = 1024;
    properties->sharedMemPerBlock = 65536;
    properties->regsPerBlock = 65536;
    for (int axis = 0; axis < 3; ++axis) {
        properties->maxThreadsDim[axis] = 1024;
        properties->maxGridSize[axis] = 65535;
    }
    return hipSuccess;
}
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t /*what*/, int /*device*/) {
    *value = 0;
    return hipSuccess;
}
hipError_t hipDeviceSynchronize() { return hipSuccess; }
const char* hipGetErrorName(hipError_t error) {
    return error == hipErrorNoDevice ? "hipErrorNoDevice" : "hipErrorFake";
}
const char* hipGetErrorString(hipError_t /*error*/) { return "as the test wanted"; }
hipError_t hipGetLastError() {
    const hipError_t error = last_error;
    last_error = hipSuccess;
    return error;
}

hipError_t hipMalloc(void** pointer, size_t bytes) { return allocate(pointer, bytes); }
hipError_t hipMallocAsync(void** pointer, size_t bytes, hipStream_t) {
    return allocate(pointer, bytes);
}
hipError_t hipMallocManaged(void** pointer, size_t bytes, unsigned) {
    return allocate(pointer, bytes);
}
hipError_t hipHostMalloc(void** pointer, size_t bytes, unsigned) {
    return allocate(pointer, bytes);
}
hipError_t hipFree(void* pointer) {
    std::free(pointer);
    return hipSuccess;
}
hipError_t hipFreeAsync(void* pointer, hipStream_t) { return hipFree(pointer); }
hipError_t hipHostFree(void* pointer) { return hipFree(pointer); }
hipError_t hipHostRegister(void*, size_t, unsigned) { return hipSuccess; }
hipError_t hipHostUnregister(void*) { return hipSuccess; }
hipError_t hipMemAdvise(const void*, size_t, hipMemoryAdvise, int) { return hipSuccess; }
hipError_t hipMemGetInfo(size_t* free_bytes, size_t* total) {
    *free_bytes = *total = size_t{1} << 30;
    return hipSuccess;
}
hipError_t hipMemcpyAsync(void* destination, const void* source, size_t bytes, hipMemcpyKind,
                          hipStream_t) {
    return copy(destination, source, bytes);
}
hipError_t hipMemset(void* pointer, int value, size_t bytes) {
    std::memset(pointer, value, bytes);
    return hipSuccess;
}
hipError_t hipMemsetAsync(void* pointer, int value, size_t bytes, hipStream_t) {
    return hipMemset(pointer, value, bytes);
}

hipError_t hipStreamCreate(hipStream_t* stream) {
    *stream = static_cast<hipStream_t>(std::malloc(1));
    return hipSuccess;
}
hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned) {
    return hipStreamCreate(stream);
}
hipError_t hipStreamDestroy(hipStream_t stream) {
    std::free(stream);
    return hipSuccess;
}
hipError_t hipStreamIsCapturing(hipStream_t, hipStreamCaptureStatus* status) {
    *status = number("MP_FAKE_HIP_CAPTURING", 0) != 0 ? hipStreamCaptureStatusActive
                                                      : hipStreamCaptureStatusNone;
    return hipSuccess;
}
hipError_t hipStreamQuery(hipStream_t) {
    return static_cast<hipError_t>(number("MP_FAKE_HIP_STREAM_ERROR", hipErrorNotReady));
}
hipError_t hipStreamSynchronize(hipStream_t) {
    return static_cast<hipError_t>(number("MP_FAKE_HIP_STREAM_ERROR", hipSuccess));
}
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned) {
    *event = static_cast<hipEvent_t>(std::malloc(1));
    return hipSuccess;
}
hipError_t hipEventRecord(hipEvent_t, hipStream_t) { return hipSuccess; }
hipError_t hipEventSynchronize(hipEvent_t) { return hipSuccess; }
hipError_t hipEventQuery(hipEvent_t) { return hipSuccess; }
hipError_t hipStreamWaitEvent(hipStream_t, hipEvent_t, unsigned) { return hipSuccess; }
hipError_t hipEventDestroy(hipEvent_t event) {
    std::free(event);
    return hipSuccess;
}
