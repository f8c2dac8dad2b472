// SPDX-License-Identifier: Apache-2.0
// Each shows one thing that the machine has to find, or to leave in peace. Also compiled by nvcc, if one asks it to.
#include "known_kernels.hpp"

#include <cuda_runtime.h>

extern __shared__ __align__(16) unsigned char mp_dynamic_shared[];

namespace mp::blocks {

namespace {

// What a kernel must not write. volatile: nobody reads it.
volatile uint32_t of_the_program = 0;

__device__ int64_t global_thread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

// The neighbour of another warp reads what a thread wrote.
__global__ void sum_without_barrier(uint32_t* out, const uint32_t* in, int64_t /*argument*/) {
    __shared__ uint32_t values[64];
    values[threadIdx.x] = in[threadIdx.x];
    out[threadIdx.x] = values[threadIdx.x] + values[(threadIdx.x + 32) % 64];
}

__global__ void sum_with_barrier(uint32_t* out, const uint32_t* in, int64_t /*argument*/) {
    __shared__ uint32_t values[64];
    for (int turn = 0; turn < 2; ++turn) {
        __syncthreads();
        values[threadIdx.x] = in[threadIdx.x];
        __syncthreads();
        out[threadIdx.x] = values[threadIdx.x] + values[(threadIdx.x + 32) % 64];
    }
}

// argument 1: with the warp's barrier; 0: by a shuffle, which orders no memory.
__global__ void warp_exchange(uint32_t* out, const uint32_t* in, int64_t argument) {
    __shared__ uint32_t values[64];
    values[threadIdx.x] = in[threadIdx.x];
    if (argument == 1) {
        __syncwarp();
    } else {
        (void)__shfl_sync(0xffffffffU, 0U, 0);
    }
    out[threadIdx.x] = values[threadIdx.x ^ 1U];
}

__global__ void one_place_by_all_blocks(uint32_t* out, const uint32_t* /*in*/,
                                        int64_t /*argument*/) {
    if (threadIdx.x == 3) {
        out[0] = blockIdx.x;
    }
}

// Block 0 reads, and so does each block that writes afterwards.
__global__ void read_what_others_write(uint32_t* out, const uint32_t* in, int64_t /*argument*/) {
    out[1 + blockIdx.x * blockDim.x + threadIdx.x] = in[0];
    __syncthreads();
    if (blockIdx.x == 1 && threadIdx.x == 0) {
        const_cast<uint32_t*>(in)[0] = 5;
    }
}

__global__ void count_by_atomics(uint32_t* out, const uint32_t* in, int64_t /*argument*/) {
    __shared__ uint32_t count;
    if (threadIdx.x == 0) {
        count = 0;
    }
    __syncthreads();
    atomicAdd(&count, in[threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(out, count);
    }
}

// In block 1 no thread fills the last place.
__global__ void read_shared_unwritten(uint32_t* out, const uint32_t* in, int64_t /*argument*/) {
    __shared__ uint32_t values[64];
    if (threadIdx.x < 63 || blockIdx.x == 0) {
        values[threadIdx.x] = in[threadIdx.x];
    }
    __syncthreads();
    out[global_thread()] = values[threadIdx.x];
}

__global__ void strided(uint32_t* out, const uint32_t* in, int64_t argument) {
    out[global_thread()] = in[global_thread() * argument];
}

struct alignas(16) Sixteen {
    uint32_t words[4];
};

__global__ void misaligned(uint32_t* out, const uint32_t* in, int64_t argument) {
    *reinterpret_cast<Sixteen*>(out) = *reinterpret_cast<const Sixteen*>(in + argument);
}

// argument: how many words of dynamic shared memory there are; or of the static one, where there is none.
__global__ void shared_beyond(uint32_t* out, const uint32_t* in, int64_t argument) {
    __shared__ uint32_t values[64];
    auto* dynamic = reinterpret_cast<uint32_t*>(mp_dynamic_shared);
    uint32_t* const to = argument != 0 ? dynamic : values;
    to[threadIdx.x] = in[threadIdx.x];
    out[threadIdx.x] = to[threadIdx.x];
    if (threadIdx.x == 5) {
        to[argument != 0 ? argument : 64] = 1;
    }
}

// argument: 0: threads from 40 on have ended; 1: wait for another barrier.
__global__ void barrier_for_some(uint32_t* out, const uint32_t* in, int64_t argument) {
    if (threadIdx.x < 40) {
        __syncthreads();
    } else if (argument == 1) {
        __syncthreads();
    }
    out[threadIdx.x] = in[threadIdx.x];
}

__global__ void two_barriers(uint32_t* out, const uint32_t* in, int64_t /*argument*/) {
    const int many = __syncthreads_count(in[threadIdx.x] > 10 ? 1 : 0);
    const int any = __syncthreads_or(threadIdx.x == 7 ? 1 : 0);
    out[threadIdx.x] = static_cast<uint32_t>(many * 10 + any);
}

// argument 0: one lane has left; 1: a mask without the lane that is read; 2: without the lane that calls.
__global__ void shuffle_without_some(uint32_t* out, const uint32_t* in, int64_t argument) {
    if (threadIdx.x == 9) {
        return;
    }
    const unsigned mask = argument == 0 ? 0xffffffffU : (argument == 1 ? 0xfffffdfeU : 0x1U);
    if (threadIdx.x == 0 && argument == 1) {
        return;
    }
    out[threadIdx.x] = __shfl_sync(mask, in[threadIdx.x], 0);
}

// A tile of 32 x 32 words, written along rows and read along columns. argument: words from row to row.
__global__ void transpose(uint32_t* out, const uint32_t* in, int64_t argument) {
    auto* tile = reinterpret_cast<uint32_t*>(mp_dynamic_shared);
    const unsigned lane = threadIdx.x % 32;
    for (unsigned row = threadIdx.x / 32; row < 32; row += blockDim.x / 32) {
        tile[row * argument + lane] = in[row * 32 + lane];
    }
    __syncthreads();
    for (unsigned row = threadIdx.x / 32; row < 32; row += blockDim.x / 32) {
        out[row * 32 + lane] = tile[lane * argument + row];
    }
}

__global__ void write_program(uint32_t* /*out*/, const uint32_t* in, int64_t /*argument*/) {
    of_the_program = in[0];
}

__global__ void lane_operations(uint32_t* out, const uint32_t* in, int64_t /*argument*/) {
    constexpr unsigned kAll = 0xffffffffU;
    const uint32_t x = in[threadIdx.x];
    uint32_t* const to = out + threadIdx.x * 12;
    to[0] = __shfl_sync(kAll, x, 5);
    to[1] = __shfl_up_sync(kAll, x, 3);
    to[2] = __shfl_down_sync(kAll, x, 3, 8);
    to[3] = __shfl_xor_sync(kAll, x, 9);
    to[4] = __ballot_sync(kAll, x % 3 == 0 ? 1 : 0);
    to[5] = static_cast<uint32_t>(__any_sync(kAll, threadIdx.x == 4 ? 1 : 0));
    to[6] = static_cast<uint32_t>(__all_sync(kAll, threadIdx.x != 4 ? 1 : 0));
    to[7] = __reduce_max_sync(kAll, x);
    to[8] = __reduce_min_sync(kAll, x);
    to[9] = __reduce_add_sync(kAll, x);
    to[10] = __reduce_or_sync(kAll, x);
    to[11] = threadIdx.x % 32 < 16 ? __shfl_sync(0xffffU, x, 2) : __shfl_sync(0xffff0000U, x, 18);
}

// Two turns of two loads of 16 bytes; a store after each turn.
__global__ void passes(uint32_t* out, const uint32_t* in, int64_t /*argument*/) {
    const auto* from = reinterpret_cast<const Sixteen*>(in);
    auto* to = reinterpret_cast<Sixteen*>(out);
    for (int turn = 0; turn < 2; ++turn) {
        const Sixteen a = from[turn * 64 + threadIdx.x];
        const Sixteen b = from[turn * 64 + 32 + threadIdx.x];
        to[turn * 32 + threadIdx.x] = {
            {a.words[0] + b.words[0], a.words[1], b.words[2], a.words[3] ^ b.words[3]}};
    }
}

// Ten turns; in each, one load takes the even words of 64, another the odd ones.
__global__ void sum_of_halves(uint32_t* out, const uint32_t* in, int64_t /*argument*/) {
    uint32_t sum = 0;
    for (int turn = 0; turn < 10; ++turn) {
        const uint32_t* const from = in + turn * 64 + threadIdx.x * 2;
        sum += from[0] ^ from[1];
    }
    out[threadIdx.x] = sum;
}

} // namespace

#define X(name)                                                                                    \
    bool launch_##name(const KnownLaunch& how, uint32_t* out, const uint32_t* in) {                \
        cudaLaunchConfig_t config = {};                                                            \
        config.gridDim = dim3(how.blocks);                                                         \
        config.blockDim = dim3(how.threads);                                                       \
        config.dynamicSmemBytes = how.dynamic_shared_bytes;                                        \
        return cudaLaunchKernelEx(&config, name, out, in, how.argument) == cudaSuccess;            \
    }
MP_KNOWN(X)
#undef X

} // namespace mp::blocks
