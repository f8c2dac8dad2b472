// SPDX-License-Identifier: Apache-2.0
#include "system/memory.hpp"

#include <cstdlib>

#include "dtype/divide.hpp"

namespace mp::system {
namespace {

void* allocate(std::size_t size, std::size_t alignment, void* /*payload*/) {
    // aligned_alloc wants a multiple of the alignment; the check keeps the rounding from wrapping.
    if (size > SIZE_MAX - alignment) {
        return nullptr;
    }
    return std::aligned_alloc(alignment, round_up(size, alignment));
}

void release(void* pointer, std::size_t /*size*/, std::size_t /*alignment*/, void* /*payload*/) {
    std::free(pointer);
}

} // namespace

MemoryTable default_memory() noexcept { return {allocate, release, nullptr}; }

} // namespace mp::system
