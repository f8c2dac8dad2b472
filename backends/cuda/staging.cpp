// SPDX-License-Identifier: Apache-2.0
#include "cuda/staging.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "cuda/error.hpp"

namespace mp::backends::cuda {

void StagingRing::close() noexcept {
    for (cudaEvent_t& event : copied_) {
        if (event != nullptr) {
            (void)cudaEventDestroy(event);
            event = nullptr;
        }
    }
    if (buffers_ != nullptr) {
        (void)cudaFreeHost(buffers_);
        buffers_ = nullptr;
    }
}

// Also continues where an earlier call failed half-way.
Status StagingRing::make_ready() noexcept {
    for (cudaEvent_t& event : copied_) {
        if (event == nullptr) {
            const cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
            if (error != cudaSuccess) {
                event = nullptr;
                return cuda_status(error, "making an event");
            }
        }
    }
    if (buffers_ == nullptr) {
        void* memory = nullptr;
        const cudaError_t error =
            cudaHostAlloc(&memory, kBuffers * kBufferBytes, cudaHostAllocDefault);
        if (error != cudaSuccess) {
            return cuda_status(error, "allocating pinned memory for copies");
        }
        buffers_ = static_cast<unsigned char*>(memory);
    }
    return {};
}

// An event that was never recorded has been reached.
bool StagingRing::is_in_use(int32_t offset) const noexcept {
    cudaEvent_t copied = copied_[(next_ + offset) % kBuffers];
    if (copied == nullptr || cudaEventQuery(copied) != cudaErrorNotReady) {
        return false;
    }
    (void)cudaGetLastError();
    return true;
}

bool StagingRing::waits_for(std::size_t bytes) noexcept {
    if (bytes > kBuffers * kBufferBytes) {
        return true;
    }
    const std::lock_guard lock(mutex_);
    std::size_t used = used_;
    int32_t offset = 0;
    for (std::size_t left = bytes; left > 0;) {
        if (used == kBufferBytes) {
            used = 0;
            ++offset;
        }
        if (used == 0 && (offset == kBuffers || is_in_use(offset))) {
            return true;
        }
        const std::size_t part = std::min(left, kBufferBytes - used);
        used += part;
        left -= part;
    }
    return false;
}

// As much as goes into one buffer. What was copied from it before is behind the same event: all of it is the stream's.
Status StagingRing::copy_through_buffer(cudaStream_t stream, void* destination, const void* source,
                                        std::size_t bytes, std::size_t* part) noexcept {
    if (used_ == kBufferBytes) {
        used_ = 0;
        next_ = (next_ + 1) % kBuffers;
    }
    cudaEvent_t copied = copied_[next_];
    if (used_ == 0 && is_in_use(0)) {
        if (const cudaError_t error = cudaEventSynchronize(copied); error != cudaSuccess) {
            return cuda_status(error, "waiting for an earlier copy to the device");
        }
    }
    unsigned char* buffer = buffers_ + static_cast<std::size_t>(next_) * kBufferBytes + used_;
    *part = std::min(bytes, kBufferBytes - used_);
    std::memcpy(buffer, source, *part);
    if (const cudaError_t error =
            cudaMemcpyAsync(destination, buffer, *part, cudaMemcpyHostToDevice, stream);
        error != cudaSuccess) {
        return cuda_status(error, "copying to the device");
    }
    used_ += *part;
    if (const cudaError_t error = cudaEventRecord(copied, stream); error != cudaSuccess) {
        (void)cudaStreamSynchronize(stream); // nothing else tells when the buffer is free
        return cuda_status(error, "recording an event");
    }
    return {};
}

Status StagingRing::copy(cudaStream_t stream, void* destination, const void* source,
                         std::size_t bytes) noexcept {
    if (bytes > kBuffers * kBufferBytes) {
        const cudaError_t error =
            cudaMemcpyAsync(destination, source, bytes, cudaMemcpyHostToDevice, stream);
        const cudaError_t waited = cudaStreamSynchronize(stream);
        return cuda_status(error != cudaSuccess ? error : waited, "copying to the device");
    }
    const std::lock_guard lock(mutex_);
    if (Status status = make_ready(); !status.ok()) {
        return status;
    }
    auto* to = static_cast<unsigned char*>(destination);
    const auto* from = static_cast<const unsigned char*>(source);
    std::size_t part = 0;
    for (std::size_t done = 0; done < bytes; done += part) {
        if (Status status =
                copy_through_buffer(stream, to + done, from + done, bytes - done, &part);
            !status.ok()) {
            return status;
        }
    }
    return {};
}

Status PinnedMemory::pin(void* host, std::size_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    const auto address = reinterpret_cast<uintptr_t>(host);
    try {
        sizes_[address] = bytes;
    } catch (const std::bad_alloc&) {
        return Status::error(Code::out_of_memory, "cuda: no memory to note what is pinned");
    }
    const cudaError_t error = cudaHostRegister(host, bytes, cudaHostRegisterPortable);
    if (error != cudaSuccess) {
        sizes_.erase(address);
    }
    return cuda_status(error, "pinning host memory");
}

void PinnedMemory::unpin(void* host) noexcept {
    const std::lock_guard lock(mutex_);
    sizes_.erase(reinterpret_cast<uintptr_t>(host));
    (void)cudaHostUnregister(host);
}

bool PinnedMemory::holds(const void* host, std::size_t bytes) const noexcept {
    const std::lock_guard lock(mutex_);
    const auto address = reinterpret_cast<uintptr_t>(host);
    auto next = sizes_.upper_bound(address);
    return next != sizes_.begin() && (--next, address + bytes <= next->first + next->second);
}

} // namespace mp::backends::cuda
