// SPDX-License-Identifier: Apache-2.0
// What Kokkos calls for the scratch memory of a launch: nothing where there is none, since the stream may be captured.
// Its own machine code, as the module links it; the linker leads its calls of CUDA here.
#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace {

int allocations = 0;
int selections = 0; // of a device
char memory[64];

} // namespace

extern "C" cudaError_t __wrap_cudaMalloc(void** out, std::size_t bytes);
extern "C" cudaError_t __wrap_cudaSetDevice(int device);

extern "C" cudaError_t __wrap_cudaMalloc(void** out, std::size_t bytes) {
    ++allocations;
    *out = bytes > 0 ? memory : nullptr;
    return cudaSuccess;
}

extern "C" cudaError_t __wrap_cudaSetDevice(int /*device*/) {
    ++selections;
    return cudaSuccess;
}

namespace {

// Asks for `bytes` twice, as two launches would.
bool asks(std::int64_t bytes, void* expected, int expected_calls) {
    Kokkos::Impl::CudaInternal instance;
    instance.m_cudaDev = 0;
    allocations = selections = 0;
    const void* first = instance.resize_team_scratch_space(0, bytes);
    const void* second = instance.resize_team_scratch_space(0, bytes);
    if (first == expected && second == expected && allocations == expected_calls &&
        selections == expected_calls) {
        return true;
    }
    std::printf("FAILED: two launches with %lld bytes of scratch memory call cudaMalloc %d and "
                "cudaSetDevice %d times, %d expected; they got %p and %p, %p expected\n",
                static_cast<long long>(bytes), allocations, selections, expected_calls, first,
                second, expected);
    return false;
}

} // namespace

int main() {
    const bool none = asks(0, nullptr, 0);
    const bool some = asks(sizeof memory, memory, 1);
    return none && some ? 0 : 1;
}
