// SPDX-License-Identifier: Apache-2.0
// What kernels call on the machine for blocks, by the names that language/cuda_runtime.h gives to it.
#pragma once

#include <cstddef>
#include <cstdint>

// NOLINTBEGIN(readability-identifier-naming): CUDA's names
struct dim3 {
    unsigned x, y, z;
    constexpr explicit dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
        : x(x_), y(y_), z(z_) {}
};

// Set before a thread runs on.
extern dim3 threadIdx;
extern dim3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;
// NOLINTEND(readability-identifier-naming)

namespace mp::blocks {

// Of a call in a kernel's text: a compiler may copy or merge instructions, lines it cannot.
struct Place {
    const char* file = "";
    int line = 0;
    // As a default argument: of the call.
    static Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
        return {file, line};
    }
};

inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kMostThreads = 1024;                     // of a block
inline constexpr std::size_t kMostShared = std::size_t{227} << 10; // bytes of a block, sm_90

struct Launch {
    const void* kernel = nullptr; // for its name
    uint32_t blocks = 0;
    uint32_t threads = 0; // of each
    std::size_t dynamic_shared_bytes = 0;
    bool is_one_dimensional = true;
    void (*enter)(const void* parameters) = nullptr; // runs the kernel as one thread
    const void* parameters = nullptr;
    std::size_t parameter_bytes = 0;

    [[nodiscard]] bool can_run() const {
        return is_one_dimensional && blocks >= 1 && blocks <= 0x7fffffffU && threads >= 1 &&
               threads <= kMostThreads && dynamic_shared_bytes <= kMostShared;
    }
};

// Runs all blocks, one after another. False where it cannot run so or a thread could not go on: reports() say why.
bool run_launch(const Launch& launch);

// Waits for all threads of the block. The number of those that say yes.
int barrier(bool predicate, const Place& place);

enum class WarpOp {
    sync,
    shuffle,
    shuffle_up,
    shuffle_down,
    shuffle_xor,
    ballot,
    largest,
    smallest,
    sum,
    bits,
};
// `which` and `width` are a shuffle's.
struct WarpCall {
    WarpOp op = WarpOp::sync;
    unsigned mask = 0;
    uint64_t value = 0;
    unsigned which = 0;
    unsigned width = kWarp;
};
// Waits for the lanes of the mask.
uint64_t warp(const WarpCall& call, const Place& place);

using AtomicNext = uint64_t (*)(uint64_t old, uint64_t operand);
// The old value of 4 or 8 bytes.
uint64_t atomic(void* address, std::size_t bytes, AtomicNext next, uint64_t operand);

} // namespace mp::blocks

// Dynamic shared memory. A kernel's file declares it so, outside of namespaces:
//   extern __shared__ __align__(16) unsigned char mp_dynamic_shared[];
extern thread_local unsigned char mp_dynamic_shared[];
