// SPDX-License-Identifier: Apache-2.0
// The operator new of a test program that has allocations.cpp among its sources: it counts, and fails where the test says
// so. Of the whole process: workers of the library count, too.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace mp::test {

inline std::atomic<int64_t> allocations_left{-1}; // until one fails; < 0: none does
inline std::atomic<bool> fails_for_ever{false};   // and all after that one

inline std::atomic<std::size_t> allocated_bytes{0};
inline std::atomic<std::size_t> largest_allocation{0};

// What operator new does, for allocators of a test's own; to be given back by std::free.
void* allocate(std::size_t size, std::size_t alignment) noexcept;

} // namespace mp::test
