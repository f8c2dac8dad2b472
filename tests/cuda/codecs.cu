// SPDX-License-Identifier: Apache-2.0
// Every one of the 2^32 fp32 numbers into every narrow format, and every code of those back, on the GPU: by our codecs, whose
// results must be the host's bit for bit, and by the GPU's own instructions, whose results must be our codecs'. NaN has many
// codes, so the instructions need only give one of them.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <thread>
#include <vector>

#include "numerics/codec.hpp"
#include "numerics/philox.hpp"

namespace {

using namespace mp;

struct Kind {
    const char* name;
    DType dtype;
    bool saturates;
};
constexpr Kind kKinds[] = {
    {"fp16", DType::fp16, false},         {"fp16 saturating", DType::fp16, true},
    {"bf16", DType::bf16, false},         {"bf16 saturating", DType::bf16, true},
    {"fp8_e4m3", DType::fp8_e4m3, false}, {"fp8_e4m3 saturating", DType::fp8_e4m3, true},
    {"fp8_e5m2", DType::fp8_e5m2, false}, {"fp8_e5m2 saturating", DType::fp8_e5m2, true}};
constexpr int kKindCount = sizeof kKinds / sizeof kKinds[0];
constexpr uint64_t kNumbers = uint64_t{1} << 32;

template <DType kDType> MP_HD_INLINE uint32_t encode(float x, bool saturates) {
    using Codec = numerics::Codec<kDType>;
    return saturates ? Codec::store_sat(x) : Codec::store_nonsat(x);
}

MP_HD_INLINE uint32_t code_of(DType dtype, float x, bool saturates) {
    switch (dtype) {
    case DType::fp16:
        return encode<DType::fp16>(x, saturates);
    case DType::bf16:
        return encode<DType::bf16>(x, saturates);
    case DType::fp8_e4m3:
        return encode<DType::fp8_e4m3>(x, saturates);
    default:
        return encode<DType::fp8_e5m2>(x, saturates);
    }
}

MP_HD_INLINE float value_of(DType dtype, uint32_t code) {
    switch (dtype) {
    case DType::fp16:
        return numerics::Codec<DType::fp16>::load(static_cast<uint16_t>(code));
    case DType::bf16:
        return numerics::Codec<DType::bf16>::load(static_cast<uint16_t>(code));
    case DType::fp8_e4m3:
        return numerics::Codec<DType::fp8_e4m3>::load(static_cast<uint8_t>(code));
    default:
        return numerics::Codec<DType::fp8_e5m2>::load(static_cast<uint8_t>(code));
    }
}

// Summed, it says whether all pairs of a number and a code are the same, in whatever order.
MP_HD_INLINE uint64_t hash_of(uint64_t number, uint32_t code) {
    return numerics::splitmix64(number << 32 | code);
}

struct Found {
    unsigned long long hash = 0;
    unsigned long long differs = 0; // by the GPU's own instructions
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define MP_HAS_FP8_INSTRUCTIONS 1
#endif

// What the GPU's instruction gives; false where it has none for that.
__device__ bool by_instruction(DType dtype, float x, bool saturates, uint32_t* code) {
    switch (dtype) {
    case DType::fp16:
        *code = __half_as_ushort(__float2half_rn(x));
        return !saturates;
    case DType::bf16:
        *code = __bfloat16_as_ushort(__float2bfloat16_rn(x));
        return !saturates;
#ifdef MP_HAS_FP8_INSTRUCTIONS
    case DType::fp8_e4m3:
        *code = __nv_cvt_float_to_fp8(x, saturates ? __NV_SATFINITE : __NV_NOSAT, __NV_E4M3);
        return saturates;
    case DType::fp8_e5m2:
        *code = __nv_cvt_float_to_fp8(x, saturates ? __NV_SATFINITE : __NV_NOSAT, __NV_E5M2);
        return saturates;
#endif
    default:
        return false;
    }
}

__global__ void encode_all(DType dtype, bool saturates, Found* found) {
    Found mine;
    const uint64_t threads = uint64_t{gridDim.x} * blockDim.x;
    for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < kNumbers; i += threads) {
        const float x = numerics::float_from_bits(static_cast<uint32_t>(i));
        const uint32_t code = code_of(dtype, x, saturates);
        mine.hash += hash_of(i, code);
        uint32_t other = 0;
        if (by_instruction(dtype, x, saturates, &other) && other != code) {
            const bool are_nan =
                numerics::is_nan(value_of(dtype, code)) && numerics::is_nan(value_of(dtype, other));
            mine.differs += are_nan ? 0 : 1;
        }
    }
    atomicAdd(&found->hash, mine.hash);
    atomicAdd(&found->differs, mine.differs);
}

__global__ void decode_all(DType dtype, uint32_t codes, Found* found) {
    const uint32_t code = blockIdx.x * blockDim.x + threadIdx.x;
    if (code < codes) {
        const uint32_t bits = numerics::bits_from_float(value_of(dtype, code));
        atomicAdd(&found->hash, static_cast<unsigned long long>(hash_of(code, bits)));
    }
}

uint64_t host_encode(const Kind& kind) {
    const unsigned threads = std::max(1U, std::thread::hardware_concurrency());
    std::vector<uint64_t> sums(threads);
    std::vector<std::thread> workers;
    for (unsigned t = 0; t < threads; ++t) {
        workers.emplace_back([&, t] {
            uint64_t sum = 0;
            for (uint64_t i = t; i < kNumbers; i += threads) {
                const float x = numerics::float_from_bits(static_cast<uint32_t>(i));
                sum += hash_of(i, code_of(kind.dtype, x, kind.saturates));
            }
            sums[t] = sum;
        });
    }
    uint64_t sum = 0;
    for (unsigned t = 0; t < threads; ++t) {
        workers[t].join();
        sum += sums[t];
    }
    return sum;
}

uint64_t host_decode(DType dtype, uint32_t codes) {
    uint64_t sum = 0;
    for (uint32_t code = 0; code < codes; ++code) {
        sum += hash_of(code, numerics::bits_from_float(value_of(dtype, code)));
    }
    return sum;
}

bool ask(cudaError_t error, const char* what) {
    if (error != cudaSuccess) {
        std::printf("%s: %s\n", what, cudaGetErrorString(error));
    }
    return error == cudaSuccess;
}

bool read(const Found* on_device, Found* found) {
    return ask(cudaGetLastError(), "launching") &&
           ask(cudaMemcpy(found, on_device, sizeof *found, cudaMemcpyDeviceToHost), "running");
}

int check_all() {
    Found* there = nullptr;
    if (!ask(cudaMalloc(&there, sizeof *there), "cudaMalloc")) {
        return 1;
    }
    bool is_right = true;
    for (const Kind& kind : kKinds) {
        Found found;
        (void)cudaMemset(there, 0, sizeof *there);
        encode_all<<<4096, 256>>>(kind.dtype, kind.saturates, there);
        if (!read(there, &found)) {
            return 1;
        }
        const bool same = found.hash == host_encode(kind);
        std::printf(
            "2^32 numbers to %-20s the host's bits: %s; by the GPU's instruction %llu differ\n",
            kind.name, same ? "yes" : "NO", found.differs);
        is_right = is_right && same && found.differs == 0;
    }
    for (int k = 0; k < kKindCount; k += 2) {
        const uint32_t codes = dtype_size(kKinds[k].dtype) == 1 ? 256 : 65536;
        Found found;
        (void)cudaMemset(there, 0, sizeof *there);
        decode_all<<<(codes + 255) / 256, 256>>>(kKinds[k].dtype, codes, there);
        if (!read(there, &found)) {
            return 1;
        }
        const bool same = found.hash == host_decode(kKinds[k].dtype, codes);
        std::printf("all %u codes of %s back: the host's bits: %s\n", codes, kKinds[k].name,
                    same ? "yes" : "NO");
        is_right = is_right && same;
    }
    (void)cudaFree(there);
    return is_right ? 0 : 1;
}

} // namespace

int main() {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        std::printf("skipped: no CUDA device\n");
        return 77;
    }
    return check_all();
}
