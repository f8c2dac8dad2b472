// SPDX-License-Identifier: Apache-2.0
#include "host/resources/memory.hpp"

#include <sys/mman.h>

namespace mp::backends::host {

namespace {

std::size_t alignment_for(std::size_t bytes) { return bytes >= kHugePage ? kHugePage : kCacheLine; }

} // namespace

void* allocate_host(const MemoryTable& memory, std::size_t bytes) noexcept {
    void* const pointer = memory.take(bytes, alignment_for(bytes));
    if (pointer != nullptr && bytes >= kHugePage) {
        // Whole huge pages only, so that no more memory is used than was asked for. Advice: where the
        // system does not take it everything works, slower.
        (void)madvise(pointer, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
    }
    return pointer;
}

void release_host(const MemoryTable& memory, void* pointer, std::size_t bytes) noexcept {
    memory.give_back(pointer, bytes, alignment_for(bytes));
}

} // namespace mp::backends::host
