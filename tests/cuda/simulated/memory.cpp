// SPDX-License-Identifier: Apache-2.0
// Memory of the simulated device, and copies. A piece of device memory ends where nothing is mapped behind it, and no piece
// ever has an address that another one had: what is used after it was freed, or too far, is a fault at once.
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include "state.hpp"

namespace mp::simulated {

namespace {

constexpr std::size_t kMemoryBytes = std::size_t{1} << 34;
constexpr std::size_t kAlignment = 256; // of cudaMalloc

struct Block {
    std::size_t bytes;
    void* mapped; // whole pages
    std::size_t mapped_bytes;
    cudaMemoryType type;
    bool is_pooled = false;
};
using Blocks = std::map<void*, Block>;

Blocks& device_memory() noexcept {
    static Blocks blocks;
    return blocks;
}
std::map<void*, std::size_t>& pinned_memory() noexcept {
    return of_driver<std::map<void*, std::size_t>>();
}

// With MP_SIMULATED_PROTECT the host cannot touch device memory: it faults, as it would in reality.
// Not always, because it takes a system call for each block of memory whenever work is done.
bool is_protected() noexcept {
    static const bool value = [] {
        const bool is_asked_for = std::getenv("MP_SIMULATED_PROTECT") != nullptr;
        if (is_asked_for && has_threads()) {
            (void)std::fputs("simulated CUDA: MP_SIMULATED_PROTECT and MP_SIMULATED_THREADS cannot "
                             "be together; unset one of them\n",
                             stderr);
            std::_Exit(1);
        }
        return is_asked_for;
    }();
    return value;
}

void protect_all(int protection) noexcept {
    if (is_protected()) {
        for (const auto& [pointer, block] : device_memory()) {
            if (block.type == cudaMemoryTypeDevice) {
                (void)mprotect(block.mapped, block.mapped_bytes, protection);
            }
        }
    }
}

// Higher than all before, where the sanitizers of threads and of addresses let programs have memory. One page behind it stays
// free.
void* map_higher(std::size_t bytes) noexcept {
    static uintptr_t next = 0x7e8000000000;
    constexpr uintptr_t kEnd = 0x7fffffff0000;
    constexpr std::size_t kStep = std::size_t{1} << 28; // over what others have there
    while (next + bytes < kEnd) {
        void* const memory =
            mmap(reinterpret_cast<void*>(next), bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (memory != MAP_FAILED) {
            next += bytes + static_cast<std::size_t>(getpagesize());
            return memory;
        }
        if (errno != EEXIST) {
            return nullptr;
        }
        next += kStep;
    }
    return nullptr;
}

cudaError_t take_memory(void** out, std::size_t bytes, cudaMemoryType type) noexcept {
    const std::lock_guard lock(mutex());
    ++control().mallocs;
    if (const cudaError_t error = begin(); error != cudaSuccess) {
        return error;
    }
    if (const cudaError_t error = refuse_unsafe(); error != cudaSuccess) {
        return error;
    }
    const auto page = static_cast<std::size_t>(getpagesize());
    const std::size_t whole = (bytes + page - 1) / page * page;
    void* const mapped = bytes > 0 && bytes <= kMemoryBytes ? map_higher(whole) : nullptr;
    if (mapped == nullptr) {
        return fail(cudaErrorMemoryAllocation);
    }
    void* const memory = static_cast<char*>(mapped) + (whole - bytes) / kAlignment * kAlignment;
    std::memset(mapped, 0xcd, whole); // its contents are undefined
    device_memory()[memory] = {bytes, mapped, whole, type, false};
    protect_all(PROT_NONE);
    ++control().allocations;
    *out = memory;
    return cudaSuccess;
}

void unmap(void* pointer) noexcept {
    const auto found = device_memory().find(pointer);
    (void)munmap(found->second.mapped, found->second.mapped_bytes);
    device_memory().erase(found);
    --control().allocations;
}

// The piece of memory that all of it lies in, or none.
const Block* block_of(const void* pointer, std::size_t bytes) noexcept {
    auto next = device_memory().upper_bound(const_cast<void*>(pointer));
    if (next == device_memory().begin()) {
        return nullptr;
    }
    const auto& [base, block] = *--next;
    const auto offset = static_cast<std::size_t>(static_cast<const char*>(pointer) -
                                                 static_cast<const char*>(base));
    return offset + bytes <= block.bytes ? &block : nullptr;
}

bool is_device_memory(const void* pointer, std::size_t bytes) noexcept {
    return block_of(pointer, bytes) != nullptr;
}

bool is_pinned(const void* pointer, std::size_t bytes) noexcept {
    auto next = pinned_memory().upper_bound(const_cast<void*>(pointer));
    if (next == pinned_memory().begin()) {
        return false;
    }
    const auto& [base, size] = *--next;
    return static_cast<const char*>(pointer) + bytes <= static_cast<const char*>(base) + size;
}

cudaError_t add_copy(cudaStream_t stream, Work work) noexcept {
    ++control().copies;
    return add(stream_of(stream), std::move(work)) ? cudaSuccess : cudaPeekAtLastError();
}

} // namespace

OpenMemory::OpenMemory() noexcept { protect_all(PROT_READ | PROT_WRITE); }
OpenMemory::~OpenMemory() { protect_all(PROT_NONE); }

bool is_on_device(const void* pointer, std::size_t bytes) noexcept {
    const std::lock_guard lock(mutex());
    return is_device_memory(pointer, bytes);
}

} // namespace mp::simulated

using namespace mp::simulated;

#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
    *free_bytes = kMemoryBytes / 2;
    *total_bytes = kMemoryBytes;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
    return take_memory(pointer, bytes, cudaMemoryTypeDevice);
}

cudaError_t cudaMallocManaged(void** pointer, std::size_t bytes, unsigned int) {
    return take_memory(pointer, bytes, cudaMemoryTypeManaged);
}

// Memory of the pool is new memory here too. Its end is the stream's work.
cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t stream) {
    const std::lock_guard lock(mutex());
    const cudaError_t refused =
        refuse_in_capture(*stream_of(stream)); // a node of a graph: not by us
    const cudaError_t error =
        refused != cudaSuccess ? refused : take_memory(pointer, bytes, cudaMemoryTypeDevice);
    if (error == cudaSuccess) {
        device_memory()[*pointer].is_pooled = true;
    }
    return error;
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
    const std::lock_guard lock(mutex());
    ++control().mallocs;
    if (device_memory().count(pointer) == 0) {
        return fail(cudaErrorInvalidValue);
    }
    const bool is_added = add(stream_of(stream), [pointer] {
        const std::lock_guard working(mutex());
        unmap(pointer);
    });
    return is_added ? cudaSuccess : cudaPeekAtLastError();
}

// Waits for all work on the device, as the real one does, but not for memory of the pool.
cudaError_t cudaFree(void* pointer) {
    const std::lock_guard lock(mutex());
    if (pointer == nullptr) {
        return cudaSuccess;
    }
    ++control().mallocs;
    if (const cudaError_t error = refuse_unsafe(); error != cudaSuccess) {
        return error;
    }
    const auto block = device_memory().find(pointer);
    if (block == device_memory().end() || !block->second.is_pooled) {
        wait_for_device();
    }
    const cudaError_t fault = begin(); // is told, but the memory is gone
    if (device_memory().count(pointer) == 0) {
        return fail(cudaErrorInvalidValue);
    }
    unmap(pointer);
    return fault != cudaSuccess ? fault : outcome();
}

cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned int) {
    const std::lock_guard lock(mutex());
    if (const cudaError_t error = begin(); error != cudaSuccess) {
        return error;
    }
    if (const cudaError_t error = refuse_unsafe(); error != cudaSuccess) {
        return error;
    }
    *pointer = std::malloc(bytes);
    pinned_memory()[*pointer] = bytes;
    ++control().pinned;
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
    return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* pointer) {
    const std::lock_guard lock(mutex());
    (void)begin();
    if (const cudaError_t error = refuse_unsafe(); error != cudaSuccess) {
        return error;
    }
    pinned_memory().erase(pointer);
    std::free(pointer);
    --control().pinned;
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned int flags) {
    const std::lock_guard lock(mutex());
    if (const cudaError_t error = begin(); error != cudaSuccess) {
        return error;
    }
    if (const cudaError_t error = refuse_unsafe(); error != cudaSuccess) {
        return error;
    }
    if (pointer == nullptr || bytes == 0 || flags != cudaHostRegisterPortable ||
        is_device_memory(pointer, bytes)) {
        return fail(cudaErrorInvalidValue);
    }
    pinned_memory()[pointer] = bytes;
    ++control().pinned;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
    const std::lock_guard lock(mutex());
    (void)begin();
    if (const cudaError_t error = refuse_unsafe(); error != cudaSuccess) {
        return error;
    }
    pinned_memory().erase(pointer);
    --control().pinned;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
    const std::lock_guard lock(mutex());
    *attributes = {};
    if (const Block* block = block_of(pointer, 1); block != nullptr) {
        attributes->type = block->type;
        attributes->devicePointer = const_cast<void*>(pointer);
    } else if (is_pinned(pointer, 1)) {
        attributes->type = cudaMemoryTypeHost;
    } else {
        attributes->type = cudaMemoryTypeUnregistered;
    }
    return begin();
}

// From any host memory as late as possible: the documentation allows it.
cudaError_t cudaMemcpyAsync(void* destination, const void* source, std::size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) {
    const std::lock_guard lock(mutex());
    const bool to_device = is_device_memory(destination, bytes);
    const bool from_device = is_device_memory(source, bytes);
    if (kind != cudaMemcpyDefault && (to_device != (kind != cudaMemcpyDeviceToHost) ||
                                      from_device != (kind != cudaMemcpyHostToDevice))) {
        return fail(cudaErrorInvalidValue);
    }
    if ((!to_device && !is_pinned(destination, bytes)) ||
        (!from_device && !is_pinned(source, bytes))) {
        if (const cudaError_t error = refuse_in_capture(*stream_of(stream)); error != cudaSuccess) {
            return error;
        }
    }
    const bool arrives = !to_device && is_pinned(destination, bytes);
    return add_copy(stream, [=] {
        std::memcpy(destination, source, bytes);
        if (arrives) {
            control().arrived += static_cast<int64_t>(bytes);
        }
    });
}

cudaError_t cudaMemcpy2DAsync(void* destination, std::size_t destination_pitch, const void* source,
                              std::size_t source_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
    const std::lock_guard lock(mutex());
    const auto extent = [&](std::size_t pitch) { return (height - 1) * pitch + width; };
    if (kind != cudaMemcpyDeviceToDevice || width > destination_pitch || width > source_pitch ||
        !is_device_memory(destination, extent(destination_pitch)) ||
        !is_device_memory(source, extent(source_pitch))) {
        return fail(cudaErrorInvalidValue); // other kinds are not used
    }
    return add_copy(stream, [=] {
        for (std::size_t row = 0; row < height; ++row) {
            std::memcpy(static_cast<char*>(destination) + row * destination_pitch,
                        static_cast<const char*>(source) + row * source_pitch, width);
        }
    });
}

cudaError_t cudaMemsetAsync(void* destination, int value, std::size_t bytes, cudaStream_t stream) {
    const std::lock_guard lock(mutex());
    if (!is_device_memory(destination, bytes)) {
        return fail(cudaErrorInvalidValue);
    }
    return add_copy(stream, [=] { std::memset(destination, value, bytes); });
}

} // extern "C"
#pragma GCC visibility pop
