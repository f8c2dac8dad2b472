// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace mp::blocks {

namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kMargin = 4096;
constexpr int kNobodysByte = 0xcd;

} // namespace

void DeviceMemory::Free::operator()(unsigned char* pointer) const {
    ::operator delete (pointer, std::align_val_t{kAlignment});
}

void* DeviceMemory::allocate(std::size_t bytes) {
    auto made = std::make_unique<Allocation>();
    const std::size_t all = bytes + 2 * kMargin;
    made->memory.reset(
        static_cast<unsigned char*>(::operator new (all, std::align_val_t{kAlignment})));
    std::memset(made->memory.get(), kNobodysByte, all);
    unsigned char* const pointer = made->memory.get() + kMargin;
    Region& region = made->region;
    region.name = "array " + std::to_string(++count_);
    region.whole = {reinterpret_cast<uintptr_t>(pointer), bytes};
    region.valid = region.whole;
    region.bytes.resize(bytes);
    allocations_.push_back(std::move(made));
    return pointer;
}

void DeviceMemory::release(void* pointer) {
    last_ = nullptr;
    std::erase_if(allocations_, [&](const std::unique_ptr<Allocation>& allocation) {
        return allocation->region.whole.begin == reinterpret_cast<uintptr_t>(pointer);
    });
}

Region* DeviceMemory::find(uintptr_t address) {
    const auto holds = [address](const Region& region) {
        return address - (region.whole.begin - kMargin) < region.whole.size + 2 * kMargin;
    };
    if (last_ != nullptr && holds(*last_)) {
        return last_;
    }
    for (const auto& allocation : allocations_) {
        if (holds(allocation->region)) {
            return last_ = &allocation->region;
        }
    }
    return nullptr;
}

template <typename Body>
void DeviceMemory::for_each_byte(const void* pointer, std::size_t bytes, const Body& body) {
    const auto begin = reinterpret_cast<uintptr_t>(pointer);
    Region* region = find(begin);
    if (region == nullptr || (bytes != 0 && !region->whole.has(begin, bytes))) {
        std::abort(); // a fault of the test's
    }
    for (uintptr_t at = begin; at < begin + bytes; ++at) {
        body(region->at(at));
    }
}

void DeviceMemory::mark_written(const void* pointer, std::size_t bytes) {
    for_each_byte(pointer, bytes, [](ByteHistory& byte) { byte.is_written = true; });
}

void DeviceMemory::forget(void* pointer, std::size_t bytes) {
    for_each_byte(pointer, bytes, [](ByteHistory& byte) { byte = {}; });
    std::memset(pointer, kNobodysByte, bytes);
}

void DeviceMemory::narrow(const void* pointer, std::size_t bytes, const char* name) {
    for_each_byte(pointer, bytes, [](const ByteHistory&) {});
    Region* region = find(reinterpret_cast<uintptr_t>(pointer));
    region->valid = {reinterpret_cast<uintptr_t>(pointer), bytes};
    region->name = name;
}

std::size_t DeviceMemory::unwritten(const void* pointer, std::size_t bytes) {
    std::size_t count = 0;
    for_each_byte(pointer, bytes,
                  [&](const ByteHistory& byte) { count += byte.is_written ? 0U : 1U; });
    return count;
}

DeviceMemory& device_memory() {
    static DeviceMemory memory;
    return memory;
}

} // namespace mp::blocks
