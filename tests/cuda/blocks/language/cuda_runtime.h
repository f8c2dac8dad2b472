// SPDX-License-Identifier: Apache-2.0
// What CUDA adds to C++, for the machine for blocks: a kernel's text is compiled by the host's compiler and runs there. What
// no kernel of ours uses is not here; its name is then an error of the compiler's.
#pragma once

#include <bit>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cuda/blocks/machine/kernel_calls.hpp"
#include "cuda_runtime_api.h"

// NOLINTBEGIN(readability-identifier-naming): CUDA's names
#define __host__
#define __device__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// All threads of a block are fibers of one thread of the host's, and blocks run one after another: its thread-local storage is
// theirs, and lies in a range of addresses of its own. So `extern __shared__` means what it says, too.
#define __shared__ thread_local

struct cudaLaunchConfig_t {
    dim3 gridDim{};
    dim3 blockDim{};
    std::size_t dynamicSmemBytes = 0;
    cudaStream_t stream = nullptr;
};

// A kernel and its parameters, which no thread writes.
template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
    struct Call {
        void (*kernel)(Parameters...);
        std::tuple<Parameters...> parameters;
    };
    const Call call = {kernel, {std::forward<Arguments>(arguments)...}};
    mp::blocks::Launch launch;
    launch.kernel = reinterpret_cast<const void*>(kernel);
    launch.blocks = config->gridDim.x;
    launch.threads = config->blockDim.x;
    launch.dynamic_shared_bytes = config->dynamicSmemBytes;
    launch.is_one_dimensional = config->gridDim.y == 1 && config->gridDim.z == 1 &&
                                config->blockDim.y == 1 && config->blockDim.z == 1;
    launch.parameters = &call;
    launch.parameter_bytes = sizeof call;
    launch.enter = [](const void* data) {
        const auto& made = *static_cast<const Call*>(data);
        std::apply(made.kernel, made.parameters);
    };
    return mp::blocks::run_launch(launch)
               ? cudaSuccess
               : (launch.can_run() ? cudaErrorLaunchFailure : cudaErrorInvalidConfiguration);
}

// ---- blocks and warps: each call says where it stands ----------------------------------------

namespace mp::blocks {

template <typename T>
__forceinline__ T shuffle(WarpOp op, unsigned mask, T value, unsigned which, int width,
                          const Place& place) {
    static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    return std::bit_cast<T>(static_cast<Bits>(
        warp({op, mask, std::bit_cast<Bits>(value), which, static_cast<unsigned>(width)}, place)));
}

__forceinline__ unsigned reduce(WarpOp op, unsigned mask, unsigned value, const Place& place) {
    return static_cast<unsigned>(warp({op, mask, value}, place));
}

} // namespace mp::blocks

#define MP_HERE mp::blocks::Place place = mp::blocks::Place::here()

__forceinline__ void __syncthreads(MP_HERE) { (void)mp::blocks::barrier(false, place); }
__forceinline__ int __syncthreads_count(int predicate, MP_HERE) {
    return mp::blocks::barrier(predicate != 0, place);
}
__forceinline__ int __syncthreads_or(int predicate, MP_HERE) {
    return mp::blocks::barrier(predicate != 0, place) != 0 ? 1 : 0;
}

__forceinline__ void __syncwarp(unsigned mask = 0xffffffffU, MP_HERE) {
    (void)mp::blocks::warp({mp::blocks::WarpOp::sync, mask}, place);
}
template <typename T>
__forceinline__ T __shfl_sync(unsigned mask, T value, int lane, int width = 32, MP_HERE) {
    return mp::blocks::shuffle(mp::blocks::WarpOp::shuffle, mask, value,
                               static_cast<unsigned>(lane), width, place);
}
template <typename T>
__forceinline__ T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, MP_HERE) {
    return mp::blocks::shuffle(mp::blocks::WarpOp::shuffle_up, mask, value, delta, width, place);
}
template <typename T>
__forceinline__ T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                                   MP_HERE) {
    return mp::blocks::shuffle(mp::blocks::WarpOp::shuffle_down, mask, value, delta, width, place);
}
template <typename T>
__forceinline__ T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, MP_HERE) {
    return mp::blocks::shuffle(mp::blocks::WarpOp::shuffle_xor, mask, value,
                               static_cast<unsigned>(lanes), width, place);
}
__forceinline__ unsigned __ballot_sync(unsigned mask, int predicate, MP_HERE) {
    return mp::blocks::reduce(mp::blocks::WarpOp::ballot, mask, predicate != 0 ? 1U : 0U, place);
}
__forceinline__ int __any_sync(unsigned mask, int predicate, MP_HERE) {
    return __ballot_sync(mask, predicate, place) != 0 ? 1 : 0;
}
__forceinline__ int __all_sync(unsigned mask, int predicate, MP_HERE) {
    return __ballot_sync(mask, predicate, place) == mask ? 1 : 0;
}
__forceinline__ unsigned __reduce_max_sync(unsigned mask, unsigned value, MP_HERE) {
    return mp::blocks::reduce(mp::blocks::WarpOp::largest, mask, value, place);
}
__forceinline__ unsigned __reduce_min_sync(unsigned mask, unsigned value, MP_HERE) {
    return mp::blocks::reduce(mp::blocks::WarpOp::smallest, mask, value, place);
}
__forceinline__ unsigned __reduce_add_sync(unsigned mask, unsigned value, MP_HERE) {
    return mp::blocks::reduce(mp::blocks::WarpOp::sum, mask, value, place);
}
__forceinline__ unsigned __reduce_or_sync(unsigned mask, unsigned value, MP_HERE) {
    return mp::blocks::reduce(mp::blocks::WarpOp::bits, mask, value, place);
}

#undef MP_HERE

// ---- atomics -----------------------------------------------------------------------------------

namespace mp::blocks {

// next(old, operand) as a function of bits: what it reads and writes is one access of the machine's.
template <typename Next, typename T> __forceinline__ T atomic_update(T* address, T operand) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    const AtomicNext next = [](uint64_t old, uint64_t with) -> uint64_t {
        return std::bit_cast<Bits>(Next{}(std::bit_cast<T>(static_cast<Bits>(old)),
                                          std::bit_cast<T>(static_cast<Bits>(with))));
    };
    return std::bit_cast<T>(
        static_cast<Bits>(atomic(address, sizeof(T), next, std::bit_cast<Bits>(operand))));
}

struct AtomicSum {
    template <typename T> T operator()(T old, T with) const { return static_cast<T>(old + with); }
};
struct AtomicLargest {
    template <typename T> T operator()(T old, T with) const { return with > old ? with : old; }
};
struct AtomicBits {
    template <typename T> T operator()(T old, T with) const { return static_cast<T>(old | with); }
};
struct AtomicExchange {
    template <typename T> T operator()(T /*old*/, T with) const { return with; }
};

} // namespace mp::blocks

template <typename T> __forceinline__ T atomicAdd(T* address, T value) {
    return mp::blocks::atomic_update<mp::blocks::AtomicSum>(address, value);
}
template <typename T> __forceinline__ T atomicMax(T* address, T value) {
    return mp::blocks::atomic_update<mp::blocks::AtomicLargest>(address, value);
}
template <typename T> __forceinline__ T atomicOr(T* address, T value) {
    return mp::blocks::atomic_update<mp::blocks::AtomicBits>(address, value);
}
template <typename T> __forceinline__ T atomicExch(T* address, T value) {
    return mp::blocks::atomic_update<mp::blocks::AtomicExchange>(address, value);
}
// NOLINTEND(readability-identifier-naming)
