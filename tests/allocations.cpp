// SPDX-License-Identifier: Apache-2.0
#include "allocations.hpp"

#include <cstdlib>
#include <new>

namespace mp::test {
namespace {

bool allocation_fails() noexcept {
    const int64_t left = allocations_left;
    if (left > 0) {
        --allocations_left;
    } else if (left == 0 && !fails_for_ever) {
        allocations_left = -1;
    }
    return left == 0;
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
    void* memory = allocate(size, alignment);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}

} // namespace

void* allocate(std::size_t size, std::size_t alignment) noexcept {
    allocated_bytes += size;
    if (size > largest_allocation) {
        largest_allocation = size;
    }
    const std::size_t blocks = size == 0 ? 1 : (size + alignment - 1) / alignment;
    return allocation_fails() ? nullptr : std::aligned_alloc(alignment, blocks * alignment);
}

} // namespace mp::test

using namespace mp::test;

void* operator new(std::size_t size) {
    return allocate_or_throw(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
    return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
// The form that std::stable_sort asks for room by.
void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
    return allocate(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/, std::align_val_t /*alignment*/) noexcept {
    std::free(memory);
}
