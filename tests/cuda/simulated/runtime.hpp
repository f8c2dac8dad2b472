// SPDX-License-Identifier: Apache-2.0
// A CUDA runtime for tests, on a machine without a GPU: eight devices whose memory is the host's, and
// streams whose work is done as late as allowed (when somebody waits for it). The host code of
// backends/cuda is linked to it in place of the real one, and the kernels run thread by thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <functional>

namespace mp::simulated {

// What a test sets and reads, through mp_simulated_control().
struct Control {
    // The fail_in-th call that can fail from now on fails with fail_with; 0: none.
    int64_t fail_in = 0;
    cudaError_t fail_with = cudaErrorUnknown;
    // What the device makes of work from now on; not forgotten by the process, as in reality. Not where streams are threads.
    cudaError_t broken = cudaSuccess;

    int64_t allocations = 0; // device memory outstanding
    int64_t pinned = 0;      // pinned host memory outstanding
    int64_t streams = 0;
    int64_t events = 0;
    int64_t handles = 0;       // of cuBLASLt: handles, descriptors, layouts, preferences
    int64_t wrong_context = 0; // calls made outside the primary context of the device they are for
    int64_t misuse = 0; // promises to cuBLASLt that a call did not keep; what a capture forbids
    int64_t waits = 0;  // waits for a stream that had work pending

    int capability = 90;  // 10 x major + minor, of all devices
    bool has_pool = true; // of memory, where a device is opened from now on

    // Calls so far.
    int64_t launches = 0; // of kernels and products
    int64_t copies = 0;   // and fills
    int64_t mallocs = 0;  // and frees
    int64_t syncs = 0;    // of streams and events, whether or not work was pending
    int64_t legacy_syncs = 0;
    // Bytes that devices have written to pinned host memory.
    std::atomic<int64_t> arrived{0};
};
Control& control() noexcept;

// Adds a kernel to a stream, or to the graph that it is captured into. False, with nothing added, where a fault is due or
// the capture is invalid.
bool enqueue(cudaStream_t stream, std::function<void()> work) noexcept;

// Whether all of it lies in one piece of memory of cudaMalloc's.
bool is_on_device(const void* pointer, std::size_t bytes) noexcept;

} // namespace mp::simulated

// What tests reach it by, beside CUDA's own functions.
extern "C" {
mp::simulated::Control* mp_simulated_control();
CUcontext mp_simulated_context();
void mp_simulated_set_context(CUcontext context);
cudaError_t mp_simulated_last_error();
// A capture in the mode that is the default, and its graph, of which a stream keeps the last one.
cudaError_t mp_simulated_begin_capture(cudaStream_t stream);
cudaError_t mp_simulated_end_capture(cudaStream_t stream);
cudaError_t mp_simulated_replay(cudaStream_t stream);
// Of what ranks asked the tests' NCCL for so far: calls that must not be, parts that did not fit together, orders of kernels
// that differ between devices.
int64_t mp_simulated_nccl_mistakes();
}
