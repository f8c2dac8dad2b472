// SPDX-License-Identifier: Apache-2.0
// Device memory of the machine for blocks, and what it remembers of each byte of it and of shared memory: who wrote it, who
// read it, and when.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "image.hpp"

namespace mp::blocks {

// When somebody touched a byte. Intervals between barriers are numbered through all launches; within one, a warp
// counts what its lanes agree on.
struct Stamp {
    uint32_t interval = 0; // 0: never
    uint32_t time = 0;
    uint32_t block = 0;
    uint16_t thread = 0;
    bool is_atomic = false;
};

struct ByteHistory {
    Stamp write;
    Stamp read;            // the last one
    uint32_t lanes = 0;    // who read in its interval, if all of one warp
    bool by_warps = false; // of several
    bool is_written = false;
    Stamp read_elsewhere; // the last one by another block of the same launch
};

// One array. `valid` is what kernels may touch of it.
struct Region {
    std::string name;
    Range whole;
    Range valid;
    std::vector<ByteHistory> bytes; // of the whole

    [[nodiscard]] ByteHistory& at(uintptr_t address) { return bytes[address - whole.begin]; }
};

class DeviceMemory {
  public:
    // Aligned to 256, with nobody's memory around it. Its bytes are 0xcd and nobody has written them.
    void* allocate(std::size_t bytes);
    void release(void* pointer);

    // The host writes, or a copy or fill of the device's.
    void mark_written(const void* pointer, std::size_t bytes);
    // As allocate() leaves it.
    void forget(void* pointer, std::size_t bytes);
    // Of the array that holds it, kernels may touch these bytes only, and it has a name in what is said about it.
    void narrow(const void* pointer, std::size_t bytes, const char* name);
    // How many bytes nobody wrote.
    [[nodiscard]] std::size_t unwritten(const void* pointer, std::size_t bytes);

    // The array of an address, with what lies beside it if that was allocated with it; null: nobody's.
    [[nodiscard]] Region* find(uintptr_t address);

  private:
    struct Free {
        void operator()(unsigned char* pointer) const;
    };
    struct Allocation {
        std::unique_ptr<unsigned char, Free> memory;
        Region region;
    };
    template <typename Body>
    void for_each_byte(const void* pointer, std::size_t bytes, const Body& body);

    std::vector<std::unique_ptr<Allocation>> allocations_;
    Region* last_ = nullptr;
    int64_t count_ = 0;
};

DeviceMemory& device_memory();

} // namespace mp::blocks
