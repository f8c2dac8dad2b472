// SPDX-License-Identifier: Apache-2.0
#include "runtime.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <vector>

// What the opaque handles of CUDA point to here.
struct CUctx_st {
    int device;
};
struct CUstream_st {
    CUctx_st* context = nullptr;
    std::deque<std::function<void()>> work;
    uint64_t enqueued = 0;
    uint64_t done = 0;
    bool is_capturing = false;
    unsigned long long capture = 0; // its number
    std::vector<std::function<void()>> graph;
};
struct CUevent_st {
    CUstream_st* stream = nullptr; // null: never recorded
    uint64_t position = 0;
    bool is_captured = false;
};

namespace mp::simulated {

namespace {

constexpr int kDevices = 2;
constexpr std::size_t kMemoryBytes = std::size_t{1} << 34;

std::recursive_mutex mutex;
CUctx_st primary[kDevices] = {{0}, {1}};
std::map<CUstream_st*, bool> streams;
std::set<CUevent_st*> events;
using Blocks = std::map<void*, std::size_t>;
Blocks device_memory;
Blocks pinned_memory;
thread_local CUcontext current = nullptr;
thread_local cudaError_t last_error = cudaSuccess;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

cudaError_t fail(cudaError_t error) noexcept {
    last_error = error;
    return error;
}

// With MP_SIMULATED_PROTECT the host cannot touch device memory: it faults, as it would in reality.
// Not always, because it takes a system call for each block of memory whenever work is done.
bool is_protected() noexcept {
    static const bool value = std::getenv("MP_SIMULATED_PROTECT") != nullptr;
    return value;
}

void protect_all(int protection) noexcept {
    if (is_protected()) {
        for (const auto& [pointer, bytes] : device_memory) {
            (void)mprotect(pointer, bytes, protection);
        }
    }
}

void* take_memory(std::size_t bytes) noexcept {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return nullptr;
    }
    std::memset(memory, 0xcd, bytes); // its contents are undefined
    return memory;
}

bool fault_is_due() noexcept { return control().fail_in > 0 && --control().fail_in == 0; }

// Checks what holds for every call; success, or the error the call returns.
cudaError_t begin(const CUstream_st* stream = nullptr) noexcept {
    const bool is_primary = current == &primary[0] || current == &primary[1];
    if (!is_primary || (stream != nullptr && stream->context != current)) {
        ++control().wrong_context;
    }
    if (fault_is_due()) {
        return fail(control().fail_with);
    }
    return cudaSuccess;
}

bool anyone_captures() noexcept {
    return std::any_of(streams.begin(), streams.end(),
                       [](const auto& entry) { return entry.first->is_capturing; });
}

// What no thread may do while a stream is captured in the mode that is the default.
cudaError_t not_in_capture() noexcept {
    if (!anyone_captures()) {
        return cudaSuccess;
    }
    ++control().misuse;
    return fail(cudaErrorStreamCaptureUnsupported);
}

// What none may do while any stream is captured, but in the relaxed mode.
cudaError_t unsafe_in_capture() noexcept {
    return capture_mode == cudaStreamCaptureModeRelaxed ? cudaSuccess : not_in_capture();
}

// The one stream that is not made. Who uses it beside the module makes no context current: the runtime takes the primary.
CUstream_st legacy;
bool is_legacy(cudaStream_t stream) noexcept { return stream == cudaStreamLegacy; }

bool add(cudaStream_t stream, std::function<void()> work) noexcept {
    if (is_legacy(stream)) {
        stream = &legacy;
    } else if (begin(stream) != cudaSuccess) {
        return false;
    }
    if (stream->is_capturing) {
        stream->graph.push_back(std::move(work));
        return true;
    }
    stream->work.push_back(std::move(work));
    ++stream->enqueued;
    return true;
}

// Of a stream up to a position, while the memory may be touched. Work that waits for another stream does that one's.
void work_until(CUstream_st& stream, uint64_t position) {
    while (stream.done < position) {
        const std::function<void()> work = std::move(stream.work.front());
        stream.work.pop_front();
        ++stream.done;
        if (control().broken == cudaSuccess) {
            work();
        }
    }
}

// Does the work of a stream up to a position.
void drain(CUstream_st& stream, uint64_t position) {
    if (stream.done >= position) {
        return;
    }
    ++control().waits;
    protect_all(PROT_READ | PROT_WRITE);
    work_until(stream, position);
    protect_all(PROT_NONE);
}

cudaError_t outcome() noexcept {
    return control().broken == cudaSuccess ? cudaSuccess : fail(control().broken);
}

bool is_part_of(const Blocks& blocks, const void* pointer, std::size_t bytes) {
    const auto* begin_of_it = static_cast<const char*>(pointer);
    auto next = blocks.upper_bound(const_cast<void*>(pointer));
    if (next == blocks.begin()) {
        return false;
    }
    const auto& [base, size] = *--next;
    return begin_of_it + bytes <= static_cast<const char*>(base) + size;
}

bool is_device_memory(const void* pointer, std::size_t bytes) {
    return is_part_of(device_memory, pointer, bytes);
}

CUresult CUDAAPI get_current(CUcontext* out) {
    *out = current;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI set_current(CUcontext context) {
    current = context;
    return CUDA_SUCCESS;
}

// A test program that looks at no counter must not pass over a mistake either.
struct Verdict {
    ~Verdict() {
        if (control().misuse != 0 || control().wrong_context != 0) {
            (void)std::fprintf(stderr, "simulated CUDA: %lld misuses, %lld wrong contexts\n",
                               static_cast<long long>(control().misuse),
                               static_cast<long long>(control().wrong_context));
            std::_Exit(1);
        }
    }
};
const Verdict verdict;

} // namespace

Control& control() noexcept {
    static Control instance;
    return instance;
}

bool enqueue(cudaStream_t stream, std::function<void()> work) noexcept {
    const std::lock_guard lock(mutex);
    ++control().launches;
    return add(stream, std::move(work));
}

bool is_on_device(const void* pointer, std::size_t bytes) noexcept {
    const std::lock_guard lock(mutex);
    return is_device_memory(pointer, bytes);
}

} // namespace mp::simulated

using namespace mp::simulated;

extern "C" {

__attribute__((visibility("default"))) Control* mp_simulated_control() { return &control(); }
__attribute__((visibility("default"))) CUcontext mp_simulated_context() { return current; }
__attribute__((visibility("default"))) void mp_simulated_set_context(CUcontext c) { current = c; }
__attribute__((visibility("default"))) cudaError_t mp_simulated_last_error() { return last_error; }

// What cudaStreamBeginCapture, cudaStreamEndCapture with its instantiation, and cudaGraphLaunch do.
__attribute__((visibility("default"))) void mp_simulated_begin_capture(cudaStream_t stream) {
    const std::lock_guard lock(mutex);
    static unsigned long long captures = 0;
    stream->is_capturing = true;
    stream->capture = ++captures;
    stream->graph.clear();
}
__attribute__((visibility("default"))) void mp_simulated_end_capture(cudaStream_t stream) {
    const std::lock_guard lock(mutex);
    stream->is_capturing = false;
}
__attribute__((visibility("default"))) void mp_simulated_replay(cudaStream_t stream) {
    const std::lock_guard lock(mutex);
    for (const auto& work : stream->graph) {
        stream->work.push_back(work);
        ++stream->enqueued;
    }
}

cudaError_t cudaDriverGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
    *count = kDevices;
    return cudaSuccess;
}

const char* cudaGetErrorName(cudaError_t error) {
    return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorSimulated";
}

const char* cudaGetErrorString(cudaError_t) { return "simulated"; }

cudaError_t cudaGetLastError() {
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** entry, unsigned int,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
    *found = cudaDriverEntryPointSuccess;
    if (std::strcmp(symbol, "cuCtxGetCurrent") == 0) {
        *entry = reinterpret_cast<void*>(&get_current);
    } else if (std::strcmp(symbol, "cuCtxSetCurrent") == 0) {
        *entry = reinterpret_cast<void*>(&set_current);
    } else {
        *found = cudaDriverEntryPointSymbolNotFound;
    }
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    if (fault_is_due()) {
        return fail(control().fail_with);
    }
    current = &primary[device];
    return cudaSuccess;
}

// Needs no context.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    if (fault_is_due()) {
        return fail(control().fail_with);
    }
    *properties = {};
    (void)std::snprintf(properties->name, sizeof properties->name, "Simulated \"GPU\" %d", device);
    properties->major = control().capability / 10;
    properties->minor = control().capability % 10;
    properties->multiProcessorCount = 3;
    properties->totalGlobalMem = kMemoryBytes;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
    *free_bytes = kMemoryBytes / 2;
    *total_bytes = kMemoryBytes;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
    const std::lock_guard lock(mutex);
    ++control().mallocs;
    if (const cudaError_t error = begin(); error != cudaSuccess) {
        return error;
    }
    if (const cudaError_t error = unsafe_in_capture(); error != cudaSuccess) {
        return error;
    }
    void* memory = bytes <= kMemoryBytes ? take_memory(bytes) : nullptr;
    if (memory == nullptr) {
        return fail(cudaErrorMemoryAllocation);
    }
    *pointer = memory;
    device_memory[memory] = bytes;
    protect_all(PROT_NONE);
    ++control().allocations;
    return cudaSuccess;
}

// Waits for all work on the device, as the real one does.
cudaError_t cudaFree(void* pointer) {
    const std::lock_guard lock(mutex);
    if (pointer == nullptr) {
        return cudaSuccess;
    }
    ++control().mallocs;
    if (const cudaError_t error = unsafe_in_capture(); error != cudaSuccess) {
        return error;
    }
    for (const auto& [stream, is_there] : streams) {
        drain(*stream, stream->enqueued);
    }
    (void)begin();
    const auto found = device_memory.find(pointer);
    if (found == device_memory.end()) {
        return fail(cudaErrorInvalidValue);
    }
    (void)munmap(pointer, found->second);
    device_memory.erase(found);
    --control().allocations;
    return outcome();
}

cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned int) {
    const std::lock_guard lock(mutex);
    if (const cudaError_t error = begin(); error != cudaSuccess) {
        return error;
    }
    if (const cudaError_t error = unsafe_in_capture(); error != cudaSuccess) {
        return error;
    }
    *pointer = std::malloc(bytes);
    pinned_memory[*pointer] = bytes;
    ++control().pinned;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void* pointer) {
    const std::lock_guard lock(mutex);
    (void)begin();
    pinned_memory.erase(pointer);
    std::free(pointer);
    --control().pinned;
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned int flags) {
    const std::lock_guard lock(mutex);
    if (const cudaError_t error = begin(); error != cudaSuccess) {
        return error;
    }
    if (pointer == nullptr || bytes == 0 || flags != cudaHostRegisterPortable ||
        is_device_memory(pointer, bytes)) {
        return fail(cudaErrorInvalidValue);
    }
    pinned_memory[pointer] = bytes;
    ++control().pinned;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
    const std::lock_guard lock(mutex);
    (void)begin();
    pinned_memory.erase(pointer);
    --control().pinned;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
    const std::lock_guard lock(mutex);
    if (const cudaError_t error = begin(); error != cudaSuccess) {
        return error;
    }
    if (flags != cudaStreamNonBlocking) {
        return fail(cudaErrorInvalidValue);
    }
    *stream = new CUstream_st;
    (*stream)->context = current;
    streams[*stream] = true;
    ++control().streams;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    const std::lock_guard lock(mutex);
    drain(*stream, stream->enqueued);
    for (cudaEvent_t event : events) {
        event->stream = event->stream == stream ? nullptr : event->stream; // it was reached
    }
    streams.erase(stream);
    delete stream;
    --control().streams;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    const std::lock_guard lock(mutex);
    ++control().syncs;
    if (is_legacy(stream)) {
        ++control().legacy_syncs;
        cudaError_t error = begin();
        if (error == cudaSuccess) {
            error = not_in_capture();
        }
        if (error != cudaSuccess) {
            return error;
        }
        drain(legacy, legacy.enqueued);
        return outcome();
    }
    if (stream->is_capturing) {
        return not_in_capture();
    }
    if (const cudaError_t error = begin(stream); error != cudaSuccess) {
        return error;
    }
    drain(*stream, stream->enqueued);
    return outcome();
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    const std::lock_guard lock(mutex);
    if (is_legacy(stream)) { // it cannot be captured
        *status = cudaStreamCaptureStatusNone;
        return begin();
    }
    *status = stream->is_capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return begin(stream);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, std::size_t*) {
    const cudaError_t error = cudaStreamIsCapturing(stream, status);
    *id = *status == cudaStreamCaptureStatusNone ? 0 : stream->capture;
    return error;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    std::swap(*mode, capture_mode);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    const std::lock_guard lock(mutex);
    if (is_legacy(stream)) {
        return legacy.done < legacy.enqueued ? fail(cudaErrorNotReady) : begin();
    }
    if (const cudaError_t error = begin(stream); error != cudaSuccess) {
        return error;
    }
    if (stream->is_capturing) {
        return not_in_capture();
    }
    if (control().broken != cudaSuccess) {
        return outcome();
    }
    return stream->done < stream->enqueued ? fail(cudaErrorNotReady) : cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
    const std::lock_guard lock(mutex);
    if (const cudaError_t error = begin(); error != cudaSuccess) {
        return error;
    }
    *event = new CUevent_st;
    events.insert(*event);
    ++control().events;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    const std::lock_guard lock(mutex);
    (void)begin();
    events.erase(event);
    delete event;
    --control().events;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    const std::lock_guard lock(mutex);
    if (const cudaError_t error = begin(stream); error != cudaSuccess) {
        return error;
    }
    event->stream = stream;
    event->position = stream->enqueued;
    event->is_captured = stream->is_capturing;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    const std::lock_guard lock(mutex);
    if (const cudaError_t error = begin(); error != cudaSuccess) {
        return error;
    }
    ++control().syncs;
    if (event->is_captured) { // for ever, until it is recorded again
        ++control().misuse;
        return fail(cudaErrorCapturedEvent);
    }
    if (event->stream != nullptr) {
        drain(*event->stream, event->position);
    }
    return outcome();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    const std::lock_guard lock(mutex);
    if (const cudaError_t error = begin(); error != cudaSuccess) {
        return error;
    }
    if (event->stream != nullptr && event->stream->done < event->position) {
        return fail(cudaErrorNotReady);
    }
    return outcome();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
    const std::lock_guard lock(mutex);
    if (const cudaError_t error = begin(stream); error != cudaSuccess) {
        return error;
    }
    if (stream->is_capturing || event->is_captured) {
        return not_in_capture();
    }
    CUstream_st* const other = event->stream;
    if (other == nullptr || other == stream) {
        return cudaSuccess;
    }
    const uint64_t position = event->position;
    stream->work.push_back([other, position] {
        if (streams.count(other) != 0) { // one that is gone has done its work
            work_until(*other, position);
        }
    });
    ++stream->enqueued;
    return cudaSuccess;
}

// From any host memory as late as possible: the documentation allows it.
cudaError_t cudaMemcpyAsync(void* destination, const void* source, std::size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) {
    const std::lock_guard lock(mutex);
    const bool to_device = kind != cudaMemcpyDeviceToHost;
    const bool from_device = kind != cudaMemcpyHostToDevice;
    if (is_device_memory(destination, bytes) != to_device ||
        is_device_memory(source, bytes) != from_device) {
        return fail(cudaErrorInvalidValue);
    }
    ++control().copies;
    const void* host = kind == cudaMemcpyHostToDevice ? source : destination;
    if (kind != cudaMemcpyDeviceToDevice && stream->is_capturing &&
        !is_part_of(pinned_memory, host, bytes)) {
        return not_in_capture();
    }
    return add(stream, [=] { std::memcpy(destination, source, bytes); }) ? cudaSuccess : last_error;
}

cudaError_t cudaMemcpy2DAsync(void* destination, std::size_t destination_pitch, const void* source,
                              std::size_t source_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
    const std::lock_guard lock(mutex);
    const auto extent = [&](std::size_t pitch) { return (height - 1) * pitch + width; };
    if (kind != cudaMemcpyDeviceToDevice || width > destination_pitch || width > source_pitch ||
        !is_device_memory(destination, extent(destination_pitch)) ||
        !is_device_memory(source, extent(source_pitch))) {
        return fail(cudaErrorInvalidValue); // other kinds are not used
    }
    const auto work = [=] {
        for (std::size_t row = 0; row < height; ++row) {
            std::memcpy(static_cast<char*>(destination) + row * destination_pitch,
                        static_cast<const char*>(source) + row * source_pitch, width);
        }
    };
    ++control().copies;
    return add(stream, work) ? cudaSuccess : last_error;
}

cudaError_t cudaMemsetAsync(void* destination, int value, std::size_t bytes, cudaStream_t stream) {
    const std::lock_guard lock(mutex);
    if (!is_device_memory(destination, bytes)) {
        return fail(cudaErrorInvalidValue);
    }
    ++control().copies;
    return add(stream, [=] { std::memset(destination, value, bytes); }) ? cudaSuccess : last_error;
}

} // extern "C"
