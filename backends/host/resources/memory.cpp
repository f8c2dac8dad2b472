// SPDX-License-Identifier: Apache-2.0
#include "host/resources/memory.hpp"

#include <sys/mman.h>

#include "process/float_environment.hpp"

namespace mp::backends::host {

namespace {

std::size_t alignment_for(std::size_t bytes) { return bytes >= kHugePage ? kHugePage : kCacheLine; }

} // namespace

void* allocate_host(const MemoryTable& memory, std::size_t bytes) noexcept {
    // Nothing is asked of the hooks for zero bytes: what they would return is not defined.
    if (bytes == 0) {
        return nullptr;
    }
    void* pointer = nullptr;
    {
        const process::CallerFloats floats(memory.is_callers);
        pointer = memory.allocate(bytes, alignment_for(bytes), memory.payload);
    }
    if (pointer != nullptr && bytes >= kHugePage) {
        // Whole huge pages only, so that no more memory is used than was asked for. Advice: where the
        // system does not take it everything works, slower.
        (void)madvise(pointer, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
    }
    return pointer;
}

void release_host(const MemoryTable& memory, void* pointer, std::size_t bytes) noexcept {
    if (pointer != nullptr) {
        const process::CallerFloats floats(memory.is_callers);
        memory.release(pointer, bytes, alignment_for(bytes), memory.payload);
    }
}

} // namespace mp::backends::host
