// SPDX-License-Identifier: Apache-2.0
#include "host/resources/memory.hpp"

namespace mp::backends::host {

using process::alignment_for;

void* allocate_host(const MemoryTable& memory, std::size_t bytes) noexcept {
    void* const pointer = memory.take(bytes, alignment_for(bytes));
    process::advise_huge_pages(pointer, bytes);
    return pointer;
}

void release_host(const MemoryTable& memory, void* pointer, std::size_t bytes) noexcept {
    memory.give_back(pointer, bytes, alignment_for(bytes));
}

} // namespace mp::backends::host
